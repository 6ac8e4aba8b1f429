"""Fixed K: the same number of rollouts from every prefix (Math-Shepherd, arXiv 2312.08935).

The dearest estimator and the reference for all others: every step gets an unbiased value with
an exact interval. Departs from the paper in that identical prefixes of a problem's solutions
share their rollouts, and the last step takes the solution's outcome instead of rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.estimators.base import (
    ROOT,
    Follow,
    Judgement,
    SolutionPath,
    Told,
    distinct_prefixes,
    outcome_estimate,
    outcome_label,
)
from mclabel.records import Counts, StepRule
from mclabel.stats.values import TruncatedPolicy, estimate_fixed, first_error, hard_label


class FixedEstimator:
    """`rollouts` from every prefix, all asked for at once."""

    follow: Follow = "nothing"

    def __init__(
        self,
        paths: Sequence[SolutionPath],
        *,
        rollouts: int,
        root_rollouts: int = 0,
        truncated: TruncatedPolicy = "wrong",
    ) -> None:
        if rollouts < 1:
            raise ValueError(f"rollouts={rollouts}: must be >= 1")
        self._paths = paths
        self._truncated = truncated
        prefixes = distinct_prefixes(paths)
        self._pending = [p for p in prefixes for _ in range(rollouts)] + [ROOT] * root_rollouts

    def wanted(self) -> list[int]:
        pending, self._pending = self._pending, []
        return pending

    def tell(self, rollout: Told) -> None:
        """Nothing to decide: the number of rollouts does not depend on their outcomes."""

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        return [self._judge(path, counts) for path in self._paths]

    def _judge(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        estimates = [estimate_fixed(counts[p], truncated=self._truncated) for p in path.prefixes]
        hard = [hard_label(estimate.value) for estimate in estimates]
        hard.append(outcome_label(path.outcome))
        rules: list[StepRule] = ["fixed"] * len(path.prefixes)
        return Judgement(
            hard=tuple(hard),
            rules=(*rules, "outcome"),
            first_error=first_error(hard),
            estimates=(*estimates, outcome_estimate(path.outcome)),
        )
