"""No rollouts: the last step takes the solution's outcome, the others get no label.

Labels for an outcome reward model, and the way in which solutions are sampled and graded where
steps do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.core.records import Counts, LabelSource
from mclabel.core.stats.values import NOTHING
from mclabel.labeling.estimators.base import (
    Estimator,
    EstimatorSettings,
    Judgement,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.estimators.paths import ProblemPaths, RecordedRollout, SolutionPath


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
