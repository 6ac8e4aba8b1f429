"""Groups of solutions under the current policy: several of one problem, as GRPO compares them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from mclabel.checkers import Checker
from mclabel.core.errors import DataError
from mclabel.core.records import Outcome, Problem, Solution
from mclabel.core.stats.values import TruncatedPolicy
from mclabel.data.steps import StepSplitter
from mclabel.engines import Policy
from mclabel.engines.base import never_fits
from mclabel.labeling.rollouts import Sampler
from mclabel.labeling.solutions import sampled_solution
from mclabel.run.cpu_executor import CpuExecutor


@dataclass(frozen=True, kw_only=True)
class Group:
    """Solutions of one problem that the current policy sampled, whatever their outcomes."""

    problem: Problem
    prompt: tuple[int, ...]
    """Ids of the rendered problem."""
    solutions: tuple[Solution, ...]


class LivePolicy:
    """The current policy on its engine, and what grades its solutions.

    Everything that is kept of a solution rests on the weights that wrote it: after new weights,
    groups of older ones are of no use.
    """

    def __init__(
        self,
        policy: Policy,
        checker: Checker,
        executor: CpuExecutor,
        *,
        splitter: StepSplitter | None = None,
    ) -> None:
        """Sample from a policy.

        Args:
            policy: started.
            checker: checker of its answers.
            executor: where grading and decisions are computed.
            splitter: splitter of its solutions.
        """
        self.policy, self.checker, self.executor = policy, checker, executor
        self.splitter = splitter or StepSplitter()

    def sampler(self, problem: Problem, *, seed: int) -> Sampler:
        """Return what samples completions of a problem, and grades them.

        Args:
            problem: with its gold answer.
            seed: seed of the draws.

        Raises:
            DataError: the problem is longer than the policy takes.
        """
        if (size := never_fits(len(problem.text), self.policy)) is not None:
            raise DataError(f"problem {problem.id}: its text has {size}, which the policy takes")
        return Sampler(
            problem=problem,
            prompt=self.policy.prompt_ids(problem.text),
            policy=self.policy,
            run_seed=seed,
            priority=0,
            on_completion=lambda outcome: None,
            journal=None,
            checker=self.checker,
            executor=self.executor,
        )

    async def group(self, problem: Problem, size: int, *, seed: int) -> Group:
        """Sample a group.

        Args:
            problem: with its gold answer.
            size: solutions of the group.
            seed: seed of the draws.

        Raises:
            EngineError: the engine died.
        """
        sampler = self.sampler(problem, seed=seed)
        thinks = self.splitter.begins_in(self.policy.decode(sampler.prompt))
        drawn = (sampled_solution(sampler, index, self.splitter, thinks) for index in range(size))
        return Group(
            problem=problem, prompt=sampler.prompt, solutions=tuple(await asyncio.gather(*drawn))
        )

    async def groups(self, problems: Sequence[Problem], size: int, *, seed: int) -> list[Group]:
        """Sample groups of several problems side by side; see `group`."""
        sampled_groups = (self.group(problem, size, seed=seed) for problem in problems)
        return list(await asyncio.gather(*sampled_groups))


def reward_of(solution: Solution, truncated: TruncatedPolicy = "wrong") -> float | None:
    """The reward of a solution's outcome: 1 if it is right, 0 if it is wrong.

    None where nothing is known: it could not be graded, or was cut and cuts are excluded.

    Args:
        solution: solution of the current policy.
        truncated: whether one that was cut counts as wrong.
    """
    return outcome_reward(solution.outcome, truncated)


def outcome_reward(outcome: Outcome, truncated: TruncatedPolicy) -> float | None:
    """The reward of an outcome; see `reward_of`."""
    if outcome is Outcome.UNGRADED or (outcome is Outcome.TRUNCATED and truncated == "exclude"):
        return None
    return float(outcome is Outcome.RIGHT)
