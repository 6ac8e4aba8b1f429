"""Shares and means over problems that count several times each, with intervals at any size.

Solutions of one problem go together, so an interval that counts each solution is too narrow. A
bootstrap over problems (`bootstrap`) holds a weight for every problem and resample in memory; these
intervals are formulas, for figures of a whole run of any size.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from mclabel.evaluation.bootstrap import LEVEL, NOTHING, Estimate


def clustered_share(hits: NDArray[np.float64], counts: NDArray[np.float64]) -> Estimate:
    """Share of hits, with Clopper and Pearson's interval at the effective number of solutions.

    The effective number is that of independent solutions whose share would vary as much as this
    one does between problems (Korn and Graubard 1998, Survey Methodology 24). Where all are hits,
    or none, nothing varies: then each problem counts once.

    Args:
        hits: of each problem [problems].
        counts: solutions of each problem [problems], positive.
    """
    if not len(counts):
        return NOTHING
    total, share = counts.sum(), hits.sum() / counts.sum()
    effective = float(len(counts))
    if 0 < share < 1 and len(counts) > 1:
        few = stdtrit(total - 1, (1 + LEVEL) / 2) / stdtrit(len(counts) - 1, (1 + LEVEL) / 2)
        spread = _variance(hits - share * counts, total)
        # spread as little as independent solutions, or less, they count as that many
        effective = min(total, few**2 * share * (1 - share) / max(spread, 1e-300))
    right, tail = share * effective, (1 - LEVEL) / 2
    low = 0.0 if right == 0 else float(betaincinv(right, effective - right + 1, tail))
    high = 1.0 if share == 1 else float(betaincinv(right + 1, effective - right, 1 - tail))
    return Estimate(value=float(share), low=low, high=high)


def clustered_mean(
    sums: NDArray[np.float64], counts: NDArray[np.float64], *, low: float, high: float
) -> Estimate:
    """Mean of what `sums` adds up, with Student's t interval over problems.

    Args:
        sums: of each problem [problems].
        counts: terms of each problem's sum [problems].
        low: least that a term can be.
        high: most that a term can be.

    Returns:
        Nothing where fewer than two problems have a term.
    """
    there = counts > 0
    sums, counts = sums[there], counts[there]
    if len(counts) < 2:
        return NOTHING
    total, mean = counts.sum(), sums.sum() / counts.sum()
    reach = stdtrit(len(counts) - 1, (1 + LEVEL) / 2) * np.sqrt(
        _variance(sums - mean * counts, total)
    )
    return Estimate(
        value=float(mean), low=float(max(low, mean - reach)), high=float(min(high, mean + reach))
    )


def _variance(residuals: NDArray[np.float64], total: float) -> float:
    """Of a ratio of sums over at least two problems, linearised (Taylor)."""
    count = len(residuals)
    return float(count / (count - 1) * (residuals**2).sum() / total**2)
