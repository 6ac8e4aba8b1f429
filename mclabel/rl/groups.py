"""Groups of solutions of one problem, sampled from the current policy, which GRPO compares."""

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
from mclabel.engines.base import describe_oversize
from mclabel.labeling.rollouts import Sampler
from mclabel.labeling.solutions import sampled_solution
from mclabel.run.cpu_executor import CpuExecutor


@dataclass(frozen=True, kw_only=True)
class Group:
    """Solutions of one problem from the current policy. None is excluded because of its outcome."""

    problem: Problem
    prompt: tuple[int, ...]
    """Token ids of the prompt with the problem."""
    solutions: tuple[Solution, ...]
    """Graded solutions, split into steps."""


class LivePolicy:
    """The current policy on its engine, with the checker that grades its solutions.

    Groups depend on the weights that sampled them, so they are useless after the weights change.
    """

    def __init__(
        self,
        policy: Policy,
        checker: Checker,
        executor: CpuExecutor,
        *,
        splitter: StepSplitter | None = None,
    ) -> None:
        """Prepare to sample from a policy.

        Args:
            policy: engine of the policy, already started.
            checker: checker of the solutions' answers.
            executor: executor that computes grades and decisions.
            splitter: splitter of solutions into steps; None takes the default splitter.
        """
        self.policy, self.checker, self.executor = policy, checker, executor
        self.splitter = splitter or StepSplitter()

    def sampler(self, problem: Problem, *, seed: int) -> Sampler:
        """Return a sampler that samples completions of a problem and grades them.

        Args:
            problem: problem with its gold answer.
            seed: random seed of the samples.

        Raises:
            DataError: the problem is longer than the policy accepts.
        """
        if (size := describe_oversize(len(problem.text), self.policy)) is not None:
            raise DataError(
                f"problem {problem.id}: its text has {size}, the limit of the policy. Leave "
                "out this problem"
            )
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
        """Sample a group of solutions of one problem.

        Args:
            problem: problem with its gold answer.
            size: number of solutions in the group.
            seed: random seed of the samples.

        Raises:
            EngineError: the engine died.
        """
        sampler = self.sampler(problem, seed=seed)
        thinks = self.splitter.begins_in(self.policy.decode(sampler.prompt))
        solutions = (
            sampled_solution(sampler, index, self.splitter, thinks) for index in range(size)
        )
        return Group(
            problem=problem,
            prompt=sampler.prompt,
            solutions=tuple(await asyncio.gather(*solutions)),
        )

    async def groups(self, problems: Sequence[Problem], size: int, *, seed: int) -> list[Group]:
        """Sample groups of several problems concurrently; see `group`."""
        sampled_groups = (self.group(problem, size, seed=seed) for problem in problems)
        return list(await asyncio.gather(*sampled_groups))


def reward_solution(solution: Solution, truncated: TruncatedPolicy = "wrong") -> float | None:
    """Return the reward of a solution's outcome: 1 if it is right, 0 if it is wrong.

    The reward is None if the solution could not be graded. It is also None if the solution was
    truncated and `truncated` is `exclude`.

    Args:
        solution: solution of the current policy.
        truncated: treatment of a truncated solution: `wrong` or `exclude`.
    """
    return reward_outcome(solution.outcome, truncated)


def reward_outcome(outcome: Outcome, truncated: TruncatedPolicy) -> float | None:
    """Return the reward of an outcome; see `reward_solution`."""
    if outcome is Outcome.UNGRADED or (outcome is Outcome.TRUNCATED and truncated == "exclude"):
        return None
    return float(outcome is Outcome.RIGHT)
