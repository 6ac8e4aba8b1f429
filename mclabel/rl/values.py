"""Values of the steps of solutions under the current policy, for credit (VinePPO, 2410.01679).

There are two kinds of evidence, both from the current weights alone: rollouts that an estimator
requests, and the group itself. Each other solution of the group that went through a state is a free
rollout of it (RTMC, 2604.11037). The outcome of a solution is never evidence for its own values,
because a baseline that depends on it would bias the gradient. Nothing is reused from earlier
weights: an estimator that learns over problems starts anew at each call.

If an estimator samples a fixed number of rollouts, these and the free rollouts have the same
distribution. They are counted together, so the value is the unbiased share of both. If the outcomes
decide when an estimator stops, its own value is taken without the free rollouts.
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
from mclabel.rl.groups import Group, LivePolicy, reward_of

BY_COUNT = "fixed"
"""Source of a label with a fixed number of rollouts, whose value depends on its counts alone."""


@dataclass(frozen=True, kw_only=True)
class SolutionValues:
    """Value estimates along one solution."""

    states: tuple[StepEstimate, ...]
    """Estimates of the problem alone and after each step, one more than there are steps. The last
    is the reward of the outcome: certain, or unknown where the solution could not be graded."""
    first_error: int | None
    """Index of the first wrong step by the estimator's rule; None where it finds none."""

    @property
    def values(self) -> tuple[float | None, ...]:
        """Return the values, in [0, 1]; None where a value is unknown."""
        return tuple(
            state.value if state.value is not None else state.mean for state in self.states
        )


@dataclass(frozen=True, kw_only=True)
class GroupValues:
    """Values of a group's solutions, and the cost of estimating them."""

    solutions: tuple[SolutionValues, ...]
    """Values of each solution, in the order of the group."""
    num_tokens: int
    """Tokens sampled for the estimates, without those of the group itself."""
    num_rollouts: int


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
            settings: settings of labelling, which name the estimator.
            free_rollouts: whether the group's other solutions count as rollouts.
            outcomes: whether the estimator takes the solutions' own outcomes as evidence. That
                helps to find a first error, but makes the values biased baselines.
        """
        self._live, self._settings = live, settings
        self._free, self._outcomes = free_rollouts, outcomes

    async def estimate(self, groups: Sequence[Group], *, seed: int) -> list[GroupValues]:
        """Estimate the values of groups that the current weights have sampled.

        Args:
            groups: groups, which are estimated concurrently.
            seed: seed of the rollouts.

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
            beginning=None if learner is None else LearnerState.by(learner),
        )
        return list(await asyncio.gather(*(self._group(group, context) for group in groups)))

    async def _group(self, group: Group, context: EngineContext) -> GroupValues:
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
    """Solutions of a group, used as rollouts of the states that they went through."""

    def __init__(self, group: Group) -> None:
        """Count the outcomes of the solutions by state.

        Args:
            group: group whose solutions were not chosen by their outcomes.
        """
        self._problem_id = group.problem.id
        self._num_visits: Counter[tuple[str, Outcome]] = Counter()
        for solution in group.solutions:
            for state in self._states(solution):
                self._num_visits[state, solution.outcome] += 1

    def _states(self, solution: Solution) -> list[str]:
        """Return the ids of the problem alone and of the prefixes after all steps but the last."""
        ends = (0, *(step.end for step in solution.steps[:-1]))
        return prefix_ids(self._problem_id, solution.ids, ends)

    def counts_of_others(self, solution: Solution) -> list[Counts]:
        """Count the outcomes of the group's other solutions, by the states that `solution` went
        through.
        """
        counts_by_state = []
        for state in self._states(solution):
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
    """Return the values of a solution with at least one step."""
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
    """Estimate the value after a step other than the last, from the estimator's label and the
    outcomes of the group's other solutions.
    """
    if label is None or label.source == BY_COUNT:
        own_counts = Counts() if label is None else label.counts
        return estimate_fixed(total_counts([own_counts, others]), truncated=truncated)
    if label.estimate is None:
        return estimate_fixed(others, truncated=truncated)
    return StepEstimate(value=label.value, low=label.low, high=label.high, mean=label.mean)


def _reward_estimate(solution: Solution) -> StepEstimate:
    reward = reward_of(solution)
    return NOTHING if reward is None else StepEstimate(value=reward, low=reward, high=reward)
