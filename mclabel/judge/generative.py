"""A generative PRM: a language model that verifies a solution in words, with a PRM's interface.

The generative PRM samples several verifications (chains) of a solution and averages their scores.
`generative_chains` samples and reads a single chain. `mclabel.prm.scoring.scorer` declares the
settings.

The engine runs on its own event loop in a thread, so that the methods of `GenerativePRM` can be
called without an event loop. The number of chains is decided like the number of a critic's votes
(`critic.parse.VoteCounter`): few if they agree on the first error, more if they disagree. A chain
without a verdict is sampled once more with twice the tokens. If no chain of a solution has a
verdict, its scores are unknown. Sampling seeds are derived from the texts and the chain's number.
Scores therefore do not depend on the order of the solutions or on other solutions that are scored
in the same call.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from mclabel.core.errors import ConfigError, DataError
from mclabel.engines import Engine, EngineStats
from mclabel.engines.base import describe_oversized_text
from mclabel.engines.settings import name_section_in_errors
from mclabel.judge.critic.parse import RETRY_BUDGET, Vote, VoteCounter
from mclabel.judge.generative_chains import (
    CERTAIN,
    GENPRM_SYSTEM,
    Chain,
    hash_verifier_wording,
    make_verifier,
)
from mclabel.prm.examples.encode import EncodedSolution, TooLongError
from mclabel.prm.scoring import GENERATIVE
from mclabel.prm.scoring.aggregate import StepEstimates, UnscoredError
from mclabel.prm.scoring.layout import OUR_SPLIT, split_into_steps
from mclabel.prm.scoring.manifest import compute_scorer_fingerprint, find_first_score_below
from mclabel.prm.scoring.scorer import POLICY, GenerativeSettings
from mclabel.run.cpu_executor import gather_or_cancel

if TYPE_CHECKING:
    from mclabel.prm.scoring.scorer import ScorerSettings


T = TypeVar("T")
MAX_TOGETHER = 512
"""Maximum number of solutions whose chains are sampled at the same time."""
_NAMED_REASONS = 3


def find_prm_identity(settings: ScorerSettings) -> dict[str, Any]:
    """Return hashes of a PRM's weights and prompts, by name, for the identity of a run.

    Raises:
        ConfigError: the settings name a bundled model that does not exist.
    """
    if settings.format != GENERATIVE:
        prm = settings.prm
        return {"prm": f"weights:{compute_scorer_fingerprint(prm)}"} if Path(prm).is_dir() else {}
    with name_section_in_errors(POLICY):
        identity = settings.engine().model_identity()
    return {"prm": identity, "wording": hash_verifier_wording(settings.generative.template)}


@dataclass(frozen=True, kw_only=True)
class PromptedSolution(EncodedSolution):
    """A solution that a generative PRM scores. Its `ids` are the token ids of the first prompt."""

    problem: str
    steps: tuple[str, ...]


class GenerativePRM:
    """Scores steps by verifications that a language model writes; implements `Scorer`."""

    def __init__(self, engine: Engine, settings: GenerativeSettings, *, name: str) -> None:
        """Start the engine in its own thread.

        Args:
            engine: engine that is not started yet.
            settings: settings of the verification.
            name: name of the model, for messages.

        Raises:
            EngineError: the engine cannot be loaded.
            ConfigError: the model does not support the settings.
        """
        self._engine, self._settings, self._name = engine, settings, name
        self._verifier = make_verifier(engine, settings.template, read=settings.read)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="verifier")
        self._thread.start()
        try:
            self._run_on_loop(self._start_engine())
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, settings: ScorerSettings) -> Self:
        """Load the model that settings name.

        Raises:
            EngineError: the model cannot be loaded.
            ConfigError: the model does not support the settings.
        """
        own = settings.generative
        if own.template == "genprm" and own.policy.system is None:
            own = own.with_changes(policy=own.policy.with_changes(system=GENPRM_SYSTEM))
        engine = own.make_engine_for_model(
            settings.prm, trust_remote_code=settings.trust_remote_code
        )
        return cls(engine, own, name=settings.prm)

    def encode(
        self, problem: str, solution: str | Sequence[str], name_in_errors: str = "solution"
    ) -> PromptedSolution:
        """Return a solution with the token ids of its first prompt.

        Args:
            problem: text of the problem.
            solution: texts of the steps, or one text that is split into steps.
            name_in_errors: description of the solution for error messages.

        Raises:
            DataError: there are no steps, or a step has no text.
            TooLongError: prompt and answer do not fit into the model's context.
        """
        given = split_into_steps(solution, OUR_SPLIT) if isinstance(solution, str) else solution
        steps = tuple(given)
        if not steps or not all(step.strip() for step in steps):
            raise DataError(
                f"{name_in_errors}: {'a step without text' if steps else 'no steps'}, but a "
                "verifier needs "
                "a text for every step. Leave the solution out"
            )
        engine = self._engine
        if (
            size := describe_oversized_text(len(problem) + sum(map(len, steps)), engine)
        ) is not None:
            raise TooLongError(f"{name_in_errors}: it has {size}, the most that the model accepts")
        ids = self._verifier.first_prompt_ids(problem, steps)
        most = self._settings.policy.max_tokens
        needed = len(ids) + self._verifier.num_fixed_tokens + most
        if needed > engine.max_context:
            raise TooLongError(
                f"{name_in_errors}: the prompt has {len(ids):,} tokens. With "
                f"{POLICY}.max_tokens={most} and "
                f"fixed texts this makes {needed:,}, but the model accepts at most "
                f"{engine.max_context:,g}. Lower {POLICY}.max_tokens, or leave the solution out"
            )
        return PromptedSolution(
            ids=ids, num_prompt=len(ids), positions=(), problem=problem, steps=steps
        )

    def score(
        self, problems: Sequence[str], solutions: Sequence[str | Sequence[str]]
    ) -> list[list[float] | UnscoredError]:
        """Return for each solution its scores, or the reason why it has none.

        The scores of a solution are one number in [0, 1] per step.
        """
        pairs = enumerate(zip(problems, solutions, strict=True))
        encoded = [
            self.encode(*pair, name_in_errors=f"solution {number}") for number, pair in pairs
        ]
        return self.score_encoded(encoded)

    def score_encoded(
        self,
        encoded: Sequence[EncodedSolution],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[list[float] | UnscoredError]:
        """Score encoded solutions as `score` does. Equal solutions are verified only once."""
        estimates = self.estimate_encoded(encoded, on_progress=on_progress)
        return [
            estimate if isinstance(estimate, UnscoredError) else estimate.scores
            for estimate in estimates
        ]

    def estimate_encoded(
        self,
        encoded: Sequence[EncodedSolution],
        *,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[StepEstimates | UnscoredError]:
        """Return for each encoded solution its scores and the number of sampled tokens.

        Raises:
            EngineDied: the engine has died.
        """
        distinct = [
            solution
            for solution in dict.fromkeys(encoded)
            if isinstance(solution, PromptedSolution)
        ]
        estimates = dict(
            zip(distinct, self._run_on_loop(self._estimate_all(distinct, on_progress)), strict=True)
        )
        return [estimates[solution] for solution in encoded]  # type: ignore[index]

    def stats(self) -> EngineStats:
        """Return the engine's statistics, which change already while chains are being sampled."""
        return self._engine.stats()

    def close(self) -> None:
        """Cancel running chains, free the engine, and end the thread. This may take seconds."""
        if self._loop.is_closed():
            return
        self._run_on_loop(self._close_engine())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run_on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the engine's event loop and return its result."""
        turn = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return turn.result()
        except BaseException:
            turn.cancel()
            raise

    # The following coroutines run on the engine's event loop.

    async def _start_engine(self) -> None:
        with name_section_in_errors(POLICY):
            self._engine.check_environment()
            await self._engine.start()
        most = self._settings.policy.max_tokens
        if most >= self._engine.max_context:
            raise ConfigError(
                f"{POLICY}.max_tokens={most}: leaves no room for a prompt in the "
                f"{self._engine.max_context:,g} tokens of context of {self._name}. Lower "
                f"{POLICY}.max_tokens"
            )
        await self._verifier.prepare()

    async def _close_engine(self) -> None:
        """Cancel all tasks that wait for chains, then close the engine."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._engine.close()

    async def _estimate_all(
        self, solutions: Sequence[PromptedSolution], on_progress: Callable[[int, int], None]
    ) -> list[StepEstimates | UnscoredError]:
        room, num_done = asyncio.Semaphore(MAX_TOGETHER), 0

        async def estimate_one(solution: PromptedSolution) -> StepEstimates | UnscoredError:
            nonlocal num_done
            async with room:
                estimates = await self._estimate_solution(solution)
            num_done += 1
            on_progress(num_done, len(solutions))
            return estimates

        with name_section_in_errors(POLICY):
            return await gather_or_cancel(*map(estimate_one, solutions))

    async def _estimate_solution(self, solution: PromptedSolution) -> StepEstimates | UnscoredError:
        """Sample chains until they agree on the first error or their maximum number is reached."""
        settings = self._settings
        votes = VoteCounter(settings.least_chains, settings.most_chains)
        chains: list[Chain] = []
        unknown: Sequence[int] = ()
        """Indices of the last round's chains without a verdict, which are sampled once more."""
        num_tokens = 0
        while count := votes.count_votes_needed():
            is_retry = votes.is_retry_round
            numbers = unknown if is_retry else range(len(chains), len(chains) + count)
            budget = settings.policy.max_tokens * (RETRY_BUDGET if is_retry else 1)
            sampled = await gather_or_cancel(
                *(
                    self._verifier.sample_chain(
                        solution.problem, solution.steps, chain_index=n, max_tokens=budget
                    )
                    for n in numbers
                )
            )
            unknown = [n for n, chain in zip(numbers, sampled, strict=True) if chain.scores is None]
            chains += [Chain()] * (0 if is_retry else count)
            for number, chain in zip(numbers, sampled, strict=True):
                chains[number] = chain
                num_tokens += chain.num_tokens
                votes.record(_make_vote(chain))
        known_scores = [chain.scores for chain in chains if chain.scores is not None]
        if not known_scores:
            return UnscoredError(_summarize_reasons(chains), num_tokens=num_tokens)
        scores = [fsum(of_step) / len(known_scores) for of_step in zip(*known_scores, strict=True)]
        return StepEstimates(scores, num_tokens)


def _make_vote(chain: Chain) -> Vote:
    if chain.scores is None:
        return Vote(None, is_known=False, reason=chain.reason)
    return Vote(find_first_score_below(chain.scores, CERTAIN), is_known=True)


def _summarize_reasons(chains: Sequence[Chain]) -> str:
    """Return why no chain of a solution has a verdict, the most frequent reasons first."""
    counts = Counter(chain.reason for chain in chains).most_common(_NAMED_REASONS)
    named = "; ".join(f"{reason} ({count})" for reason, count in counts)
    return f"none of {len(chains)} chains gives a verdict: {named}"
