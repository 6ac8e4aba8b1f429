"""Fixed K: the same number of rollouts from every prefix (Math-Shepherd, arXiv 2312.08935).

The dearest estimator and the reference for all others: every step gets an unbiased value with
an exact interval. Departs from the paper in that identical prefixes of a problem's solutions
share their rollouts, and the last step takes the solution's outcome instead of rollouts.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.estimators.base import ROOT, Judgement, SolutionPath, outcome_label
from mclabel.records import Counts, Outcome, StepRule
from mclabel.values import TruncatedPolicy, first_error, hard_label, value


class FixedEstimator:
    """`rollouts` from every prefix, all asked for at once."""

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
        prefixes = sorted({p for path in paths for p in path.prefixes})
        self._pending = [p for p in prefixes for _ in range(rollouts)] + [ROOT] * root_rollouts

    def wanted(self) -> list[int]:
        pending, self._pending = self._pending, []
        return pending

    def tell(self, prefix: int, outcome: Outcome) -> None:
        """Nothing to decide: the number of rollouts does not depend on their outcomes."""

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        return [self._judge(path, counts) for path in self._paths]

    def _judge(self, path: SolutionPath, counts: Sequence[Counts]) -> Judgement:
        hard = [hard_label(value(counts[p], truncated=self._truncated)) for p in path.prefixes]
        hard.append(outcome_label(path.outcome))
        rules: list[StepRule] = ["fixed"] * len(path.prefixes)
        return Judgement(hard=tuple(hard), rules=(*rules, "outcome"), first_error=first_error(hard))
