"""Rollouts for TRL's trainer: solutions sampled by mclabel's engine, with credit for each token.

TRL calls `rollout_func` with each prompt repeated once for each solution of its group. It then
requests the advantages of the same batch. The batch is sampled with the trainer's current weights.
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
from mclabel.rl.groups import Group, LivePolicy, reward_solution
from mclabel.rl.measure import Measurement
from mclabel.rl.training.crediting import AssignedCredits, CreditAssigner
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.cpu_executor import CpuExecutor

if TYPE_CHECKING:
    from torch import Tensor


class StepRollouts:
    """Samples the groups of each optimizer step and keeps their advantages until TRL needs them."""

    def __init__(
        self,
        engine: LiveEngine,
        crediting: CreditAssigner,
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
            crediting: object that assigns advantages to the solutions.
            problems: problems to train on. Their texts must be distinct.
            group_size: number of solutions per problem.
            end_id: id of the end token of a solution.
            stop: stop texts, which end a solution without an end token.
            seed: random seed of the run.
        """
        self._engine, self._crediting = engine, crediting
        self._by_text = {problem.text: problem for problem in problems}
        self._group_size, self._end_id, self._seed = group_size, end_id, seed
        self._stop = tuple(stop)
        self._synced_at: int | None = None
        self._lengths: list[int] = []
        self._advantages: list[list[float] | None] = []
        self.figures: dict[str, float] = {}
        """Figures of the last optimizer step by name, for the log."""

    def sample(self, prompts: Sequence[str], trainer: Any) -> dict[str, Any]:
        """Sample a solution for each prompt. TRL calls this method as its `rollout_func`.

        Args:
            prompts: texts of problems. Each text is repeated `group_size` times in a row.
            trainer: trainer whose current weights are used.

        Returns:
            `prompt_ids`, `completion_ids` and `logprobs` in TRL's format, and `outcome_reward`.
        """
        step = trainer.state.global_step
        if step != self._synced_at:
            self._engine.update(get_model_weights(trainer))
            self._synced_at = step
        problems = self._problems(prompts)
        sampling_began = time.monotonic()
        seed = sampling_seed(self._seed, "rl", "step", step)
        groups = self._engine.groups(problems, seed=seed)
        sampling_ended = time.monotonic()
        credited = self._crediting.assign(groups, seed=seed)
        solutions = [solution for group in groups for solution in group.solutions]
        self._lengths = [len(self._completion_ids(solution)) for solution in solutions]
        self._advantages = [
            None if advantages is None else advantages[: len(self._completion_ids(solution))]
            for group, group_advantages in zip(groups, credited.advantages, strict=True)
            for solution, advantages in zip(group.solutions, group_advantages, strict=True)
        ]
        self.figures = compute_step_figures(groups, credited) | {
            "seconds_sampling": sampling_ended - sampling_began,
            "seconds_credit": time.monotonic() - sampling_ended,
        }
        return {
            "prompt_ids": [list(g.prompt) for g in groups for _ in g.solutions],
            "completion_ids": [self._completion_ids(solution) for solution in solutions],
            "logprobs": None,
            "outcome_reward": [reward_solution(solution) or 0.0 for solution in solutions],
        }

    def measure(
        self, problems: Sequence[Problem], *, samples: int, seed: int
    ) -> tuple[Measurement, list[Group]]:
        """Sample solutions of held-out problems with the engine's weights, and measure them.

        Args:
            problems: one or more problems that are not trained on.
            samples: number of solutions per problem.
            seed: random seed of the samples.

        Returns:
            The measurement, and the sampled solutions by problem.

        Raises:
            EngineError: the engine died.
        """
        groups = self._engine.groups(problems, seed=seed, size=samples)
        return Measurement.from_groups(groups, self._crediting.lowest_scores(groups)), groups

    def advantages(self, completion_ids: Sequence[Sequence[int]]) -> list[list[float] | None]:
        """Return the advantages of the solutions from the last call of `sample`.

        Args:
            completion_ids: token ids of these solutions, in the same order.

        Returns:
            For each solution one advantage per token, or None if it is left out of the loss.

        Raises:
            TrainingError: the lengths of the solutions differ from those of the last call.
        """
        if [len(ids) for ids in completion_ids] != self._lengths:
            raise TrainingError(
                "the trainer requests the credit of solutions that were not sampled in the last "
                "batch. The installed version of trl may not be supported: install a version "
                "from 1.6 to 1.16"
            )
        return self._advantages

    def _problems(self, prompts: Sequence[str]) -> list[Problem]:
        """Return the distinct problems of an optimizer step, in order."""
        distinct_prompts = prompts[:: self._group_size]
        repeated = [prompt for prompt in distinct_prompts for _ in range(self._group_size)]
        if list(prompts) != repeated:
            raise TrainingError(
                f"the trainer's prompts must be repeated {self._group_size} times each, but are "
                "not. The installed version of trl may not be supported: install a version from "
                "1.6 to 1.16"
            )
        return [self._by_text[text] for text in distinct_prompts]

    def _completion_ids(self, solution: Solution) -> list[int]:
        """Return a solution's token ids, with the end token if the policy sampled one."""
        ended = solution.finish_reason == "stop" and not solution.text.endswith(self._stop)
        return [*solution.ids, *([self._end_id] if ended else [])]


def get_model_weights(trainer: Any) -> Mapping[str, Any]:
    """Return the weights of a trainer's model by parameter name, as in transformers."""
    weights: Mapping[str, Any] = trainer.accelerator.unwrap_model(trainer.model).state_dict()
    return weights


def compute_step_figures(groups: Sequence[Group], credited: AssignedCredits) -> dict[str, float]:
    """Return the log figures of an optimizer step by name.

    Args:
        groups: groups of the step.
        credited: advantages of the groups.
    """
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
    """An engine with the current weights, which samples groups and estimates step values.

    Its methods block until their results are ready. It is a context manager: the engine is loaded
    on entry and freed on exit.
    """

    def __init__(self, engine: Engine, settings: RLSettings) -> None:
        """Prepare the engine without loading it.

        Args:
            engine: engine of the policy, not started.
            settings: settings of the training run.
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
        self._run_in_loop(self._engine.start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run_in_loop(self._engine.close())
        finally:
            self._executor.close()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def groups(
        self, problems: Sequence[Problem], *, seed: int, size: int | None = None
    ) -> list[Group]:
        """Sample a group of solutions for each problem, concurrently.

        Args:
            problems: problems to sample solutions for.
            seed: random seed of the samples.
            size: number of solutions in a group; None takes `group_size` of the settings.

        Raises:
            EngineError: the engine died.
        """
        size = size or self._settings.group_size
        return self._run_in_loop(self.live.groups(problems, size, seed=seed))

    def values(
        self, groups: Sequence[Group], *, seed: int, outcomes: bool = False
    ) -> list[GroupValues]:
        """Estimate the step values of groups sampled with the current weights; see `LiveValues`.

        Args:
            groups: groups whose steps are estimated.
            seed: seed of the rollouts.
            outcomes: true if an estimator may use the solutions' own outcomes as evidence.

        Raises:
            EngineError: the engine died.
        """
        settings = LabelSettings(
            split=self._settings.split,
            checker=self._settings.checker,
            estimator=self._settings.estimator,
        )
        values = LiveValues(self.live, settings, outcomes=outcomes)
        return self._run_in_loop(values.estimate(groups, seed=seed))

    def update(self, weights: Mapping[str, Tensor]) -> None:
        """Load new weights into the engine.

        Raises:
            EngineError: the engine cannot load the weights.
        """
        self._run_in_loop(self._engine.update_weights(weights))

    def _run_in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
