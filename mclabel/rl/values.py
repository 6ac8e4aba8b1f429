"""Step values of solutions under the current policy, for credit (VinePPO, 2410.01679).

A state is the problem, or the problem with the first steps of a solution. Its value is estimated
from two kinds of evidence: rollouts that an estimator requests, and the group itself. Another
solution of the group that passes through the same state is a free rollout from that state (RTMC,
2604.11037). By default, the outcome of a solution is not evidence for its own values, because a
baseline that depends on the outcome would bias the gradient. Evidence from earlier weights is never
used: an estimator that learns over problems restarts at each call.

If an estimator samples a fixed number of rollouts, these have the same distribution as the free
rollouts. Both are counted together, so the share of right rollouts is an unbiased value. If an
estimator stops depending on outcomes, its own value is used without the free rollouts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mclabel.core.records import (
    Counts,
    LabeledSolution,
    Outcome,
    Solution,
    StepLabel,
    total_counts,
)
from mclabel.core.seeds import prefix_ids
from mclabel.core.stats.values import NOTHING, StepEstimate, TruncatedPolicy, estimate_fixed
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState
from mclabel.labeling.labeled import Sampling
from mclabel.labeling.problem import EngineContext, label_sampled, run_learner
from mclabel.rl.groups import Group, LivePolicy, reward_solution

BY_COUNT = "fixed"
"""Value of `StepLabel.source` for a fixed number of rollouts. The value of such a label depends
only on its counts."""


@dataclass(frozen=True, kw_only=True)
class SolutionValues:
    """Value estimates along one solution."""

    states: tuple[StepEstimate, ...]
    """Estimates before the first step and after each step, `num_steps + 1` in all. The last one is
    the reward of the outcome, which is exact, or unknown if the solution could not be graded."""
    first_error: int | None
    """Index of the first wrong step according to the estimator, from 0; None if it finds none."""

    @property
    def values(self) -> tuple[float | None, ...]:
        """Return the values of `states`, in [0, 1]; None for an unknown value."""
        return tuple(
            state.value if state.value is not None else state.mean for state in self.states
        )


@dataclass(frozen=True, kw_only=True)
class GroupValues:
    """Values of a group's solutions, and the cost of estimating them."""

    solutions: tuple[SolutionValues, ...]
    """Values of each solution, in the order of the group."""
    num_tokens: int
    """Number of tokens sampled for the estimates, excluding the group's own solutions."""
    num_rollouts: int
    """Number of rollouts sampled for the estimates."""


class LiveValues:
    """An estimator of step values on the engine of the current policy."""

    def __init__(
        self,
        live: LivePolicy,
        settings: LabelSettings,
        *,
        free_rollouts: bool = True,
        outcomes: bool = False,
    ) -> None:
        """Prepare to estimate the values of a policy's steps.

        Args:
            live: current policy on its engine.
            settings: labelling settings, which name the estimator.
            free_rollouts: true if the group's other solutions count as rollouts.
            outcomes: true if the estimator uses the solutions' own outcomes as evidence. This
                helps to find a first error, but makes the values biased baselines.
        """
        self._live, self._settings = live, settings
        self._free, self._outcomes = free_rollouts, outcomes

    async def estimate(self, groups: Sequence[Group], *, seed: int) -> list[GroupValues]:
        """Estimate the step values of groups sampled with the current weights, concurrently.

        Args:
            groups: groups whose steps are estimated.
            seed: random seed of the rollouts.

        Raises:
            EngineError: the engine died.
        """
        live = self._live
        settings = self._settings.model_copy(update={"seed": seed})
        learner = run_learner(settings)
        context = EngineContext(
            policy=live.policy,
            settings=settings,
            checker=live.checker,
            executor=live.executor,
            decisions=DecisionBatcher(live.executor),
            beginning=None if learner is None else LearnerState.from_learner(learner),
        )
        return list(
            await asyncio.gather(*(self._estimate_group(group, context) for group in groups))
        )

    async def _estimate_group(self, group: Group, context: EngineContext) -> GroupValues:
        solutions = [solution for solution in group.solutions if solution.steps]
        truncated = self._settings.estimator.truncated
        sampling = Sampling(
            siblings=Counts(),
            num_sampled=len(group.solutions),
            num_sampled_right=0,
            chosen_by_outcome=not self._outcomes,
        )
        labels = await label_sampled(
            context,
            [self._live.sampler(group.problem, seed=context.settings.seed)],
            group.prompt,
            solutions,
            sampling,
        )
        rows: Sequence[LabeledSolution | None] = labels.labeled or [None] * len(solutions)
        free = FreeRollouts(group) if self._free else None
        by_id = {
            solution.id: _solution_values(solution, row, free, truncated)
            for solution, row in zip(solutions, rows, strict=True)
        }
        return GroupValues(
            solutions=tuple(
                by_id.get(solution.id)
                or SolutionValues(states=(_reward_estimate(solution),), first_error=None)
                for solution in group.solutions
            ),
            num_tokens=labels.num_tokens,
            num_rollouts=len(labels.rollouts),
        )


class FreeRollouts:
    """The solutions of a group, used as rollouts from the states that they pass through."""

    def __init__(self, group: Group) -> None:
        """Count the outcomes of the solutions for each state.

        Args:
            group: group whose solutions were not selected by outcome.
        """
        self._problem_id = group.problem.id
        self._num_visits: Counter[tuple[str, Outcome]] = Counter()
        for solution in group.solutions:
            for state in self._state_ids(solution):
                self._num_visits[state, solution.outcome] += 1

    def _state_ids(self, solution: Solution) -> list[str]:
        """Return the ids of a solution's states: before the first step, and after each step but
        the last.
        """
        ends = (0, *(step.end for step in solution.steps[:-1]))
        return prefix_ids(self._problem_id, solution.ids, ends)

    def counts_of_others(self, solution: Solution) -> list[Counts]:
        """Return the outcome counts of the group's other solutions for each state of a solution."""
        counts_by_state = []
        for state in self._state_ids(solution):
            counts = Counts()
            for outcome in Outcome:
                others = self._num_visits[state, outcome] - (outcome is solution.outcome)
                for _ in range(others):
                    counts = counts.plus(outcome)
            counts_by_state.append(counts)
        return counts_by_state


def _solution_values(
    solution: Solution,
    row: LabeledSolution | None,
    free: FreeRollouts | None,
    truncated: TruncatedPolicy,
) -> SolutionValues:
    """Return the values of a solution with at least one step.

    Args:
        solution: solution of a group.
        row: labels of the solution from the estimator; None if nothing was labelled.
        free: free rollouts of the group; None to use none.
        truncated: effect of truncated rollouts on values.
    """
    other_counts = free.counts_of_others(solution) if free else [Counts()] * len(solution.steps)
    root = total_counts([other_counts[0], Counts() if row is None else row.root])
    states = [estimate_fixed(root, truncated=truncated)]
    labels: Sequence[StepLabel | None] = [None] * len(solution.steps) if row is None else row.steps
    for label, others in zip(labels[:-1], other_counts[1:], strict=True):
        states.append(_step_estimate(label, others, truncated))
    return SolutionValues(
        states=(*states, _reward_estimate(solution)),
        first_error=None if row is None else row.first_error,
    )


def _step_estimate(
    label: StepLabel | None, others: Counts, truncated: TruncatedPolicy
) -> StepEstimate:
    """Estimate the value after a step other than the last one.

    Args:
        label: the estimator's label of the step; None if nothing was labelled.
        others: outcomes of the group's other solutions that pass through the state.
        truncated: effect of truncated rollouts on values.
    """
    if label is None or label.source == BY_COUNT:
        own_counts = Counts() if label is None else label.counts
        return estimate_fixed(total_counts([own_counts, others]), truncated=truncated)
    if label.estimate is None:
        return estimate_fixed(others, truncated=truncated)
    return StepEstimate(value=label.value, low=label.low, high=label.high, mean=label.mean)


def _reward_estimate(solution: Solution) -> StepEstimate:
    reward = reward_solution(solution)
    return NOTHING if reward is None else StepEstimate(value=reward, low=reward, high=reward)
