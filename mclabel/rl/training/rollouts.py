"""The rollouts of TRL's trainer: solutions from our engine, with credit for each token.

TRL calls `rollout_func` with each prompt repeated once for every solution of its group, and then
requests advantages. Both come from one batch, which is sampled with the current weights of the
trainer.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mclabel.checkers import make_checker
from mclabel.core.errors import TrainingError
from mclabel.core.records import Outcome, Problem, Solution
from mclabel.core.seeds import sampling_seed
from mclabel.engines import Engine
from mclabel.labeling.config import LabelSettings
from mclabel.rl.config import RLSettings
from mclabel.rl.groups import Group, LivePolicy, reward_of
from mclabel.rl.measure import Measurement
from mclabel.rl.training.crediting import Credited, Crediting
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.cpu_executor import CpuExecutor

if TYPE_CHECKING:
    from torch import Tensor


class StepRollouts:
    """A sampler of the groups of each optimizer step, which keeps their credit."""

    def __init__(
        self,
        engine: LiveEngine,
        crediting: Crediting,
        problems: Sequence[Problem],
        *,
        group_size: int,
        end_id: int,
        stop: Sequence[str] = (),
        seed: int,
    ) -> None:
        """Prepare to sample.

        Args:
            engine: engine of the policy.
            crediting: method that assigns credit to its solutions.
            problems: problems to train on, with distinct texts.
            group_size: number of solutions per problem.
            end_id: id of the token that ends a solution.
            stop: texts that end a solution without that token.
            seed: seed of the run.
        """
        self._engine, self._crediting = engine, crediting
        self._by_text = {problem.text: problem for problem in problems}
        self._group_size, self._end_id, self._seed = group_size, end_id, seed
        self._stop = tuple(stop)
        self._synced_at: int | None = None
        self._lengths: list[int] = []
        self._advantages: list[list[float] | None] = []
        self.figures: dict[str, float] = {}
        """Figures of the last step, for the log."""

    def sample(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Sample a solution for each prompt, as TRL's `rollout_func`. Equal prompts are adjacent.

        Returns:
            `prompt_ids`, `completion_ids` and `logprobs` as TRL requires them, and the rewards.
        """
        step = trainer.state.global_step
        if step != self._synced_at:
            self._engine.update(whole_weights(trainer))
            self._synced_at = step
        problems = self._problems(prompts)
        sampling_began = time.monotonic()
        seed = sampling_seed(self._seed, "rl", "step", step)
        groups = self._engine.groups(problems, seed=seed)
        sampling_ended = time.monotonic()
        credited = self._crediting.assign(groups, seed=seed)
        solutions = [solution for group in groups for solution in group.solutions]
        self._lengths = [len(self._completion(solution)) for solution in solutions]
        self._advantages = [
            None if advantages is None else advantages[: len(self._completion(solution))]
            for group, group_advantages in zip(groups, credited.advantages, strict=True)
            for solution, advantages in zip(group.solutions, group_advantages, strict=True)
        ]
        self.figures = step_figures(groups, credited) | {
            "seconds_sampling": sampling_ended - sampling_began,
            "seconds_credit": time.monotonic() - sampling_ended,
        }
        return {
            "prompt_ids": [list(g.prompt) for g in groups for _ in g.solutions],
            "completion_ids": [self._completion(solution) for solution in solutions],
            "logprobs": None,
            "outcome_reward": [reward_of(solution) or 0.0 for solution in solutions],
        }

    def measure(
        self, problems: Sequence[Problem], *, samples: int, seed: int
    ) -> tuple[Measurement, list[Group]]:
        """Sample solutions of other problems with the engine's current weights, and measure them.

        Args:
            problems: one or more problems that are not trained on.
            samples: number of solutions per problem.
            seed: seed of the draws.

        Raises:
            EngineError: the engine died.
        """
        groups = self._engine.groups(problems, seed=seed, size=samples)
        return Measurement.from_groups(groups, self._crediting.lowest_scores(groups)), groups

    def advantages(self, completion_ids: Sequence[Sequence[int]]) -> list[list[float] | None]:
        """Return the advantages of the tokens that `sample` returned last, in their order; None for
        solutions that are left out of the loss.

        Raises:
            TrainingError: the lengths differ from those of the sampled completions.
        """
        if [len(ids) for ids in completion_ids] != self._lengths:
            raise TrainingError(
                "the trainer asks for the credit of other solutions than were sampled for it. "
                "Its version may sample in another way: see which versions of trl are supported"
            )
        return self._advantages

    def _problems(self, prompts: Sequence[str]) -> list[Problem]:
        """Return the problems of a step, once each."""
        distinct_prompts = prompts[:: self._group_size]
        repeated = [prompt for prompt in distinct_prompts for _ in range(self._group_size)]
        if list(prompts) != repeated:
            raise TrainingError(
                f"the trainer gives prompts that are not repeated {self._group_size} times each. "
                "Its version may sample in another way: see which versions of trl are supported"
            )
        return [self._by_text[text] for text in distinct_prompts]

    def _completion(self, solution: Solution) -> list[int]:
        """Return a solution's ids, with the end token if the policy ended it with one."""
        ended = solution.finish_reason == "stop" and not solution.text.endswith(self._stop)
        return [*solution.ids, *([self._end_id] if ended else [])]


def whole_weights(trainer: Any) -> Mapping[str, Any]:
    """Return the weights of a trainer's model, by their names in transformers."""
    weights: Mapping[str, Any] = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    return weights


def step_figures(groups: Sequence[Group], credited: Credited) -> dict[str, float]:
    """Return the figures of a step's groups, for the log."""
    solutions = [solution for group in groups for solution in group.solutions]
    num_solutions = len(solutions)
    outcomes = Counter(solution.outcome for solution in solutions)
    advantages = [tokens for group in credited.advantages for tokens in group]
    credits = [abs(a) for tokens in advantages for a in tokens or ()]
    figures = {
        "pass_at_1": outcomes[Outcome.RIGHT] / num_solutions,
        "truncated": outcomes[Outcome.TRUNCATED] / num_solutions,
        "ungraded": outcomes[Outcome.UNGRADED] / num_solutions,
        "length": sum(len(solution.ids) for solution in solutions) / num_solutions,
        "steps_of_solutions": sum(len(solution.steps) for solution in solutions) / num_solutions,
        "mean_abs_advantage": sum(credits) / max(1, len(credits)),
        "num_tokens": sum(len(solution.ids) for solution in solutions),
        "num_value_tokens": credited.num_value_tokens,
        "refused": credited.refused.total() / num_solutions,
        "masked": sum(tokens is None for tokens in advantages) / num_solutions,
    }
    if credited.mean_score is not None:
        figures["prm_less_outcome"] = credited.mean_score - figures["pass_at_1"]
    return figures


T = TypeVar("T")


class LiveEngine:
    """An engine with the current weights, which samples and estimates values. Its methods block
    until their results are ready.

    It is a context manager: the engine is loaded on entry and freed on exit.
    """

    def __init__(self, engine: Engine, settings: RLSettings) -> None:
        """Prepare the engine without loading it.

        Args:
            engine: engine of the policy, not started.
            settings: settings of the training.
        """
        self._engine, self._settings = engine, settings
        self._executor = CpuExecutor()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rl-engine", daemon=True
        )
        self.live = LivePolicy(
            engine, make_checker(settings.checker), self._executor, splitter=settings.split
        )

    def __enter__(self) -> LiveEngine:
        self._thread.start()
        self._wait(self._engine.start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._engine.close())
        finally:
            self._executor.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def groups(
        self, problems: Sequence[Problem], *, seed: int, size: int | None = None
    ) -> list[Group]:
        """Sample a group of solutions to each problem.

        Args:
            problems: problems, which are sampled concurrently.
            seed: seed of the draws.
            size: number of solutions in a group; None takes `group_size` of the settings.

        Raises:
            EngineError: the engine died.
        """
        size = size or self._settings.group_size
        return self._wait(self.live.groups(problems, size, seed=seed))

    def values(
        self, groups: Sequence[Group], *, seed: int, outcomes: bool = False
    ) -> list[GroupValues]:
        """Estimate the values of groups that the current weights have sampled; see `LiveValues`.

        Raises:
            EngineError: the engine died.
        """
        settings = LabelSettings(
            split=self._settings.split,
            checker=self._settings.checker,
            estimator=self._settings.estimator,
        )
        values = LiveValues(self.live, settings, outcomes=outcomes)
        return self._wait(values.estimate(groups, seed=seed))

    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Update the weights of the engine.

        Raises:
            EngineError: the engine cannot load them.
        """
        self._wait(self._engine.update_weights(weights))

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
