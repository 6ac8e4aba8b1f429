"""Percentile bootstrap over problems: solutions of one problem go together.

Plain percentiles are too narrow where problems are few. These are widened as Student's t widens a
normal interval, and for a resample's variance being that of n draws and not of n - 1 (expanded
percentiles: Hesterberg, arXiv 1411.5279).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtr, stdtrit

NUM_RESAMPLES = 1000
LEVEL = 0.95
FEW_PROBLEMS = 20
"""Under which intervals are too narrow: they held the truth in 93 to 95% of simulated runs of 10
problems, in as few as 78% of those of 5 (tests/support/bands.py)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its bootstrap interval; all None where there is nothing to measure."""

    value: float | None
    low: float | None
    high: float | None


NOTHING = Estimate(value=None, low=None, high=None)


def resample_weights(num_problems: int, seed: int) -> NDArray[np.float64]:
    """Draw how often each problem is in each resample [resamples, problems]."""
    if not num_problems:
        return np.zeros((NUM_RESAMPLES, 0))
    rng = np.random.default_rng(seed)
    even = [1 / num_problems] * num_problems
    return rng.multinomial(num_problems, even, NUM_RESAMPLES).astype(np.float64)


def interval(resampled: NDArray[np.float64], num_problems: int) -> tuple[float, float]:
    """Expanded percentiles of a figure; of one problem, its extremes.

    Args:
        resampled: [resamples], NaN where there is none.
        num_problems: number of problems that count in the figure.
    """
    tail = 0.0
    if num_problems > 1:
        quantile = stdtrit(num_problems - 1, (1 + LEVEL) / 2)
        tail = float(ndtr(-quantile * math.sqrt(num_problems / (num_problems - 1))))
    low, high = np.nanquantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def ratio_estimate(
    top: NDArray[np.float64], bottom: NDArray[np.float64], weights: NDArray[np.float64]
) -> Estimate:
    """Sum of `top` over sum of `bottom`.

    Args:
        top: [problems]
        bottom: [problems]
        weights: weights of the resamples; the same weights make estimates paired.
    """
    if not len(top) or bottom.sum() == 0:
        return NOTHING
    tops, bottoms = weights @ top, weights @ bottom
    usable = bottoms > 0
    low, high = interval(tops[usable] / bottoms[usable], int((bottom > 0).sum()))
    return Estimate(value=float(top.sum() / bottom.sum()), low=low, high=high)


def mean_estimate(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Estimate:
    """Estimate the mean over problems, those with NaN left out.

    Args:
        values: [problems]
        weights: weights of the resamples.
    """
    there = ~np.isnan(values)
    return ratio_estimate(np.where(there, values, 0.0), there.astype(np.float64), weights)


def sums_estimate(
    table: NDArray[np.float64],
    weights: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Estimate:
    """Any figure that is a function of sums over problems.

    Args:
        table: each problem's part of the sums [problems, columns].
        weights: weights of the resamples [resamples, problems].
        statistic: from sums [..., columns] to figures [...], NaN where there is none.
    """
    if not len(table):
        return NOTHING
    value = float(statistic(table.sum(0)))
    if np.isnan(value):
        return NOTHING
    resampled = statistic(weights @ table)
    low, high = interval(resampled, len(table))
    return Estimate(value=value, low=low, high=high)


def sums_by_problem(problems: Sequence[str], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up the rows of each problem [problems, columns], in the order of first rows.

    Args:
        problems: id of each row's problem.
        columns: [rows, columns]
    """
    place = {problem: number for number, problem in enumerate(dict.fromkeys(problems))}
    table = np.zeros((len(place), columns.shape[1]))
    np.add.at(table, [place[problem] for problem in problems], columns)
    return table


def shares(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """`top` over `bottom`, NaN where there is nothing below."""
    return np.divide(top, bottom, out=np.full_like(bottom, np.nan), where=bottom > 0)


def harmonic_mean(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """2ab / (a + b), 0 where both are 0."""
    return 2 * a * b / np.where(a + b == 0, 1.0, a + b)


def cohen_kappa(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa: (observed - expected agreement) / (1 - expected agreement).

    NaN where both judges give every step the same class: chance alone would agree as well.

    Args:
        counts: number of times each pair of classes was given [..., one's classes, the other's].
    """
    total = counts.sum((-2, -1))
    observed = shares(np.trace(counts, axis1=-2, axis2=-1), total)
    expected = shares((counts.sum(-1) * counts.sum(-2)).sum(-1), total * total)
    return shares(observed - expected, 1 - expected)


def nominal_alpha(
    units: Sequence[Sequence[Hashable]],
) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
    """Krippendorff's alpha for names, as sums over units that can be resampled.

    alpha = 1 - observed / expected disagreement (Krippendorff 2011, Computing Krippendorff's
    Alpha-Reliability). NaN where all judges give all units the same name.

    Args:
        units: the names that judges gave each unit, two or more a unit.

    Returns:
        What each unit adds to the sums [units, 1 + names], and alpha from such sums.
    """
    names = {name: i for i, name in enumerate(dict.fromkeys(n for unit in units for n in unit))}
    table = np.zeros((len(units), 1 + len(names)))
    for row, unit in zip(table, units, strict=True):
        for name in unit:
            row[1 + names[name]] += 1
        differing = len(unit) ** 2 - (row[1:] ** 2).sum()
        row[0] = differing / (len(unit) - 1)

    def alpha(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        total = sums[..., 1:].sum(-1)
        expected = total**2 - (sums[..., 1:] ** 2).sum(-1)
        return 1 - shares(sums[..., 0] * (total - 1), expected)

    return table, alpha


# Shares and means over problems that count several times each, with intervals at any size.
#
# Solutions of one problem go together, so an interval that counts each solution is too narrow. A
# bootstrap over problems (`bootstrap`) holds a weight for every problem and resample in memory;
# these intervals are formulas, for figures of a whole run of any size.


def clustered_share(hits: NDArray[np.float64], counts: NDArray[np.float64]) -> Estimate:
    """Share of hits, with Clopper and Pearson's interval at the effective number of solutions.

    The effective number is that of independent solutions whose share would vary as much as this
    one does between problems (Korn and Graubard 1998, Survey Methodology 24). Where all are hits,
    or none, nothing varies: then each problem counts once.

    Args:
        hits: hits of each problem [problems].
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
    """Estimate the mean of the terms in `sums`, with Student's t interval over problems.

    Args:
        sums: sum of each problem's terms [problems].
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
    """Return the linearised variance (Taylor) of a ratio of sums over two problems or more."""
    count = len(residuals)
    return float(count / (count - 1) * (residuals**2).sum() / total**2)
