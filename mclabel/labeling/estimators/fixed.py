"""Estimators that roll out steps in a fixed order: `fixed`, `first_error` and `outcome`.

`fixed` samples the same number of rollouts from every prefix (Math-Shepherd, arXiv 2312.08935). It
is the most expensive estimator and the reference for all others, as every step gets an unbiased
value with an exact interval. It departs from the paper in two points: identical prefixes of a
problem's solutions share their rollouts, and the label of the last step is the solution's outcome.

`first_error` rolls out the steps of a solution in order, up to the first step that is judged wrong
(SCAN, arXiv 2509.16548). A prefix recovers if one of its rollouts ends right. It labels all steps
of a right solution as right, without rollouts. In a wrong solution it rolls out each step a fixed
number of times, and goes on to the next step only if the prefix recovered. The steps after the
first wrong step are labelled wrong by implication. The number of rollouts from a step does not
depend on their outcomes, so values and intervals are computed as for `fixed`.

`outcome` samples no rollouts. The label of the last step is the solution's outcome, and the other
steps get no label. It serves outcome reward models, and jobs that only sample and grade solutions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.settings import at_most
from mclabel.core.stats.values import (
    NOTHING,
    StepEstimate,
    estimate_fixed,
    find_first_error,
    is_recoverable,
)
from mclabel.labeling.estimators.base import (
    MAX_ROLLOUTS,
    TEXTS_IN_MEMORY,
    Estimator,
    EstimatorSettings,
    Judgement,
    RolloutSettings,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.estimators.paths import (
    ROOT,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    get_guess_probability,
    list_distinct_prefixes,
)


class FixedEstimator(Estimator):
    """Asks for `rollouts` rollouts from every prefix, all at once."""

    class Settings(RolloutSettings):
        """Estimates an unbiased value of every step from its own rollouts, with an exact
        interval.
        """

        root_rollouts: Annotated[int, at_most(MAX_ROLLOUTS, TEXTS_IN_MEMORY)] = Field(0, ge=0)
        """Number of rollouts from the problem before its first step, in addition to its sampled
        solutions."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem."""
        self._paths, self._truncated = problem.paths, settings.truncated
        self._chance = get_guess_probability(problem.answer_class)
        self._pending = [
            prefix
            for prefix in list_distinct_prefixes(self._paths)
            for _ in range(settings.rollouts)
        ] + [ROOT] * settings.root_rollouts

    def wanted(self) -> list[int]:
        """Return all requests at the first call, and none at later calls."""
        pending, self._pending = self._pending, []
        return pending

    def record(self, rollout: RecordedRollout) -> None:
        """Do nothing, because the requests do not depend on outcomes, and `judge` receives the
        counts.
        """

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label each step by the share of right rollouts from its prefix."""
        return [self._judge_solution(path, counts) for path in self._paths]

    def _judge_solution(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        estimates = [estimate_fixed(counts[p], truncated=self._truncated) for p in path.prefixes]
        hard = [
            is_recoverable(counts[p], truncated=self._truncated, chance=self._chance)
            for p in path.prefixes
        ]
        hard.append(outcome_label(path.outcome))
        sources: list[LabelSource] = ["fixed"] * len(path.prefixes)
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=find_first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )


class OutcomeEstimator(Estimator):
    """Asks for no rollouts, and labels only last steps."""

    class Settings(EstimatorSettings):
        """Samples no rollouts, and labels only the last step, by the answer's verdict."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem."""
        self._paths = problem.paths

    def wanted(self) -> list[int]:
        """Return no requests."""
        return []

    def record(self, rollout: RecordedRollout) -> None:
        """Raise an error, since this estimator never asks for a rollout."""
        raise AssertionError("no rollout was asked for")

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the last step of each solution by the solution's outcome."""
        return [self._judge_solution(path) for path in self._paths]

    def _judge_solution(self, path: SolutionPath) -> Judgement:
        sources: list[LabelSource] = ["none"] * len(path.prefixes)
        return Judgement(
            hard=(*[None] * len(path.prefixes), outcome_label(path.outcome)),
            sources=(*sources, "outcome"),
            first_error=None,
            estimates=(*[NOTHING] * len(path.prefixes), outcome_estimate(path.outcome)),
        )


class FirstErrorEstimator(Estimator):
    """Rolls out the steps of wrong solutions in order, up to the first step without a right
    rollout.
    """

    class Settings(RolloutSettings):
        """Searches for the first error of wrong solutions step by step, with `rollouts` rollouts
        from every step that the search reaches.
        """

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Initialise the estimator of a problem."""
        self._paths = problem.paths
        self._rollouts, self._truncated = settings.rollouts, settings.truncated
        self._chance = get_guess_probability(problem.answer_class)
        self._num_outstanding: dict[int, int] = {}
        self._counts: dict[int, Counts] = defaultdict(Counts)

    def wanted(self) -> list[int]:
        """Request rollouts from the next step of each wrong solution.

        The next step of a solution is the first one whose prefix is not known to recover. A prefix
        appears once for each requested rollout, and is returned by only one call.
        """
        heads = {
            p
            for path in self._paths
            if (p := self._find_first_unrecovered_prefix(path)) is not None
        }
        fresh = sorted(prefix for prefix in heads if prefix not in self._num_outstanding)
        self._num_outstanding |= dict.fromkeys(fresh, self._rollouts)
        return [prefix for prefix in fresh for _ in range(self._rollouts)]

    def record(self, rollout: RecordedRollout) -> None:
        """Count the outcome of a rollout."""
        self._num_outstanding[rollout.prefix] -= 1
        self._counts[rollout.prefix] = self._counts[rollout.prefix].plus(rollout.outcome)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label steps up to the first error by their rollouts, and label later steps wrong."""
        return [self._judge_solution(path, counts) for path in self._paths]

    def _find_first_unrecovered_prefix(self, path: SolutionPath) -> int | None:
        """Return the first prefix of a solution that is not known to recover.

        Return None if the solution's outcome is not wrong, or if all its prefixes recover.
        """
        if path.outcome is not Outcome.WRONG:
            return None
        return next(
            (
                p
                for p in path.prefixes
                if not (self._num_outstanding.get(p) == 0 and self._judge_recovery(self._counts[p]))
            ),
            None,
        )

    def _judge_recovery(self, counts: Counts) -> bool | None:
        return is_recoverable(counts, truncated=self._truncated, chance=self._chance)

    def _judge_solution(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        estimates: list[StepEstimate] = []
        hard: list[bool | None] = []
        sources: list[LabelSource] = []
        for prefix in path.prefixes:
            reached = prefix in self._num_outstanding
            estimate = (
                estimate_fixed(counts[prefix], truncated=self._truncated) if reached else NOTHING
            )
            label = self._judge_recovery(counts[prefix]) if reached else None
            if path.outcome is Outcome.RIGHT:
                label = True
            elif False in hard:
                label = False
            estimates.append(estimate)
            hard.append(label if path.outcome in (Outcome.RIGHT, Outcome.WRONG) else None)
            sources.append("fixed" if reached else "implied" if hard[-1] is not None else "none")
        hard.append(outcome_label(path.outcome))
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=find_first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
