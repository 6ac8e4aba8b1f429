"""Estimators by counts, in an order known before: `fixed`, `first_error`, `outcome`.

Fixed K: the same number of rollouts from every prefix (Math-Shepherd, arXiv 2312.08935). The most
expensive estimator and the reference for all others: every step gets an unbiased value with an
exact interval. Departs from the paper in that identical prefixes of a problem's solutions share
their rollouts, and the last step takes the solution's outcome instead of rollouts.

First error: in order of steps, up to the first that is judged wrong (SCAN, arXiv 2509.16548). A
solution that ends right is taken for sound throughout and costs nothing. In one that ends wrong
each step is rolled out a fixed number of times, the next only if this one recovered; the steps
after the first wrong one are wrong by implication. The number of rollouts of a step that was
reached does not depend on their outcomes, so its value and interval are those of `fixed`.

Outcome: no rollouts; the last step takes the solution's outcome, the others get no label. For an
outcome reward model, and the way in which solutions are sampled and graded where steps do not
matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, LabelSource, Outcome
from mclabel.core.settings import at_most
from mclabel.core.stats.values import NOTHING, StepEstimate, estimate_fixed, first_error, recovers
from mclabel.labeling.estimators.base import (
    KEPT,
    MAX_ROLLOUTS,
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
    chance_of,
    distinct_prefixes,
)


class FixedEstimator(Estimator):
    """Asks for `rollouts` from every prefix, all at once."""

    class Settings(RolloutSettings):
        """An unbiased value of every step from its own rollouts, with an exact interval."""

        root_rollouts: Annotated[int, at_most(MAX_ROLLOUTS, KEPT)] = Field(0, ge=0)
        """Rollouts from the problem alone, besides its sampled solutions."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths, self._truncated = problem.paths, settings.truncated
        self._chance = chance_of(problem.answer_class)
        self._pending = [
            prefix for prefix in distinct_prefixes(self._paths) for _ in range(settings.rollouts)
        ] + [ROOT] * settings.root_rollouts

    def wanted(self) -> list[int]:
        """All rollouts at the first call, none after it."""
        pending, self._pending = self._pending, []
        return pending

    def record(self, rollout: RecordedRollout) -> None:
        """Do nothing: the number of rollouts does not depend on their outcomes."""

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label by the share of right rollouts."""
        return [self._judge(path, counts) for path in self._paths]

    def _judge(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        estimates = [estimate_fixed(counts[p], truncated=self._truncated) for p in path.prefixes]
        hard = [
            recovers(counts[p], truncated=self._truncated, chance=self._chance)
            for p in path.prefixes
        ]
        hard.append(outcome_label(path.outcome))
        sources: list[LabelSource] = ["fixed"] * len(path.prefixes)
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )


class OutcomeEstimator(Estimator):
    """Asks for nothing."""

    class Settings(EstimatorSettings):
        """No rollouts: only the last step is labelled, by the answer."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths = problem.paths

    def wanted(self) -> list[int]:
        """No rollouts."""
        return []

    def record(self, rollout: RecordedRollout) -> None:
        """Fail: no rollout was asked for."""
        raise AssertionError("no rollout was asked for")

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label the last steps."""
        return [self._judge(path) for path in self._paths]

    def _judge(self, path: SolutionPath) -> Judgement:
        sources: list[LabelSource] = ["none"] * len(path.prefixes)
        return Judgement(
            hard=(*[None] * len(path.prefixes), outcome_label(path.outcome)),
            sources=(*sources, "outcome"),
            first_error=None,
            estimates=(*[NOTHING] * len(path.prefixes), outcome_estimate(path.outcome)),
        )


class FirstErrorEstimator(Estimator):
    """Rolls each step of the wrong solutions out, until the first that never recovers."""

    class Settings(RolloutSettings):
        """First errors of wrong solutions, step by step; `rollouts` of every prefix reached."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths = problem.paths
        self._rollouts, self._truncated = settings.rollouts, settings.truncated
        self._chance = chance_of(problem.answer_class)
        self._due: dict[int, int] = {}
        self._counts: dict[int, Counts] = defaultdict(Counts)

    def wanted(self) -> list[int]:
        """All rollouts of each solution's next step, once."""
        heads = {p for path in self._paths if (p := self._head(path)) is not None}
        fresh = sorted(prefix for prefix in heads if prefix not in self._due)
        self._due |= dict.fromkeys(fresh, self._rollouts)
        return [prefix for prefix in fresh for _ in range(self._rollouts)]

    def record(self, rollout: RecordedRollout) -> None:
        """Count its outcome."""
        self._due[rollout.prefix] -= 1
        self._counts[rollout.prefix] = self._counts[rollout.prefix].plus(rollout.outcome)

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """Label up to the first error by rollouts, after it by implication."""
        return [self._judge(path, counts) for path in self._paths]

    def _head(self, path: SolutionPath) -> int | None:
        """The first prefix of a solution that is not known to recover, None if it has an end."""
        if path.outcome is not Outcome.WRONG:
            return None
        return next(
            (p for p in path.prefixes if not (self._done(p) and self._recovers(self._counts[p]))),
            None,
        )

    def _done(self, prefix: int) -> bool:
        return self._due.get(prefix) == 0

    def _recovers(self, counts: Counts) -> bool | None:
        return recovers(counts, truncated=self._truncated, chance=self._chance)

    def _judge(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        estimates: list[StepEstimate] = []
        hard: list[bool | None] = []
        sources: list[LabelSource] = []
        for prefix in path.prefixes:
            reached = prefix in self._due
            estimate = (
                estimate_fixed(counts[prefix], truncated=self._truncated) if reached else NOTHING
            )
            label = self._recovers(counts[prefix]) if reached else None
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
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
