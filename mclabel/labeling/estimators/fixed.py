"""Fixed K: the same number of rollouts from every prefix (Math-Shepherd, arXiv 2312.08935).

The most expensive estimator and the reference for all others: every step gets an unbiased value
with an exact interval. Departs from the paper in that identical prefixes of a problem's solutions
share their rollouts, and the last step takes the solution's outcome instead of rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from mclabel.core.records import Counts, LabelSource
from mclabel.core.settings import at_most
from mclabel.core.stats.values import estimate_fixed, first_error, hard_label
from mclabel.labeling.estimators.base import (
    KEPT,
    MAX_ROLLOUTS,
    Estimator,
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
    distinct_prefixes,
)


class FixedEstimator(Estimator):
    """Asks for `rollouts` from every prefix, all at once."""

    class Settings(RolloutSettings):
        """An unbiased value of every step from its own rollouts, with an exact interval."""

        root_rollouts: Annotated[int, at_most(MAX_ROLLOUTS, KEPT)] = Field(0, ge=0)
        """Rollouts from the bare problem, besides its sampled solutions, which count, too."""

    def __init__(self, settings: Settings, problem: ProblemPaths) -> None:
        """Begin with a problem; see `Estimator`."""
        self._paths, self._truncated = problem.paths, settings.truncated
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
        hard = [hard_label(estimate.value) for estimate in estimates]
        hard.append(outcome_label(path.outcome))
        sources: list[LabelSource] = ["fixed"] * len(path.prefixes)
        return Judgement(
            hard=tuple(hard),
            sources=(*sources, "outcome"),
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
