"""No rollouts: the last step takes the solution's outcome, the others get no label.

Labels for an outcome reward model, and the way in which solutions are sampled and graded where
steps do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.estimators.base import (
    Follow,
    Judgement,
    SolutionPath,
    Told,
    outcome_estimate,
    outcome_label,
)
from mclabel.records import Counts, StepRule
from mclabel.stats.values import NOTHING


class OutcomeEstimator:
    """Asks for nothing."""

    follow: Follow = "nothing"

    def __init__(self, paths: Sequence[SolutionPath]) -> None:
        self._paths = paths

    def wanted(self) -> list[int]:
        return []

    def tell(self, rollout: Told) -> None:
        raise AssertionError("no rollout was asked for")

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        return [self._judge(path) for path in self._paths]

    def _judge(self, path: SolutionPath) -> Judgement:
        rules: list[StepRule] = ["none"] * len(path.prefixes)
        return Judgement(
            hard=(*[None] * len(path.prefixes), outcome_label(path.outcome)),
            rules=(*rules, "outcome"),
            first_error=None,
            estimates=(*[NOTHING] * len(path.prefixes), outcome_estimate(path.outcome)),
        )
