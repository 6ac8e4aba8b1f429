"""Percentile bootstrap over problems: all solutions of a problem are resampled together.

Plain percentile intervals are too narrow if there are few problems. This module uses expanded
percentiles (Hesterberg, arXiv 1411.5279): it widens the interval as Student's t widens a normal
interval, and corrects the resamples' variance, which divides by n instead of n - 1.
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
"""Number of problems below which 95% intervals may be too narrow. They contained the true value in
93 to 95% of simulated runs of 10 problems, but in only 78% of some runs of 5
(tests/support/bands.py)."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate with its 95% interval; all fields are None if there are no data."""

    value: float | None
    low: float | None
    high: float | None


NOTHING = Estimate(value=None, low=None, high=None)


def draw_resample_weights(num_problems: int, seed: int) -> NDArray[np.float64]:
    """Draw bootstrap resamples; return how often each resample contains each problem [resamples,
    problems].
    """
    if not num_problems:
        return np.zeros((NUM_RESAMPLES, 0))
    rng = np.random.default_rng(seed)
    probabilities = [1 / num_problems] * num_problems
    return rng.multinomial(num_problems, probabilities, NUM_RESAMPLES).astype(np.float64)


def compute_bootstrap_interval(
    resampled: NDArray[np.float64], num_problems: int
) -> tuple[float, float]:
    """Return the interval of a statistic by expanded percentiles.

    With a single problem the interval is the smallest and the largest resampled value.

    Args:
        resampled: values of the statistic [resamples]; NaN if a resample has no value.
        num_problems: number of problems that contribute to the statistic.
    """
    tail = 0.0
    if num_problems > 1:
        quantile = stdtrit(num_problems - 1, (1 + LEVEL) / 2)
        tail = float(ndtr(-quantile * math.sqrt(num_problems / (num_problems - 1))))
    low, high = np.nanquantile(resampled, [tail, 1 - tail])
    return float(low), float(high)


def estimate_ratio(
    numerators: NDArray[np.float64],
    denominators: NDArray[np.float64],
    resample_weights: NDArray[np.float64],
) -> Estimate:
    """Estimate the sum of `numerators` divided by the sum of `denominators`.

    Args:
        numerators: numerator of each problem [problems].
        denominators: denominator of each problem [problems].
        resample_weights: weights of the resamples [resamples, problems], from
            `draw_resample_weights`. Estimates with the same weights use the same resamples, so
            their differences are paired.
    """
    if not len(numerators) or denominators.sum() == 0:
        return NOTHING
    resampled_numerators, resampled_denominators = (
        resample_weights @ numerators,
        resample_weights @ denominators,
    )
    usable = resampled_denominators > 0
    low, high = compute_bootstrap_interval(
        resampled_numerators[usable] / resampled_denominators[usable], int((denominators > 0).sum())
    )
    return Estimate(value=float(numerators.sum() / denominators.sum()), low=low, high=high)


def estimate_mean(values: NDArray[np.float64], resample_weights: NDArray[np.float64]) -> Estimate:
    """Estimate the mean over problems, skipping problems whose value is NaN.

    Args:
        values: value of each problem [problems].
        resample_weights: weights of the resamples [resamples, problems].
    """
    has_value = ~np.isnan(values)
    return estimate_ratio(
        np.where(has_value, values, 0.0), has_value.astype(np.float64), resample_weights
    )


def estimate_from_sums(
    terms_by_problem: NDArray[np.float64],
    resample_weights: NDArray[np.float64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Estimate:
    """Estimate a statistic that is a function of sums over problems.

    Args:
        terms_by_problem: each problem's part of the sums [problems, columns].
        resample_weights: weights of the resamples [resamples, problems].
        statistic: function from sums [..., columns] to values [...], NaN for an undefined value.
    """
    if not len(terms_by_problem):
        return NOTHING
    value = float(statistic(terms_by_problem.sum(0)))
    if np.isnan(value):
        return NOTHING
    low, high = compute_bootstrap_interval(
        statistic(resample_weights @ terms_by_problem), len(terms_by_problem)
    )
    return Estimate(value=value, low=low, high=high)


def sum_by_problem(problems: Sequence[str], columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Add up the rows of each problem [problems, columns], in the order of their first rows.

    Args:
        problems: problem id of each row.
        columns: values of the rows [rows, columns].
    """
    row_by_problem = {problem: number for number, problem in enumerate(dict.fromkeys(problems))}
    table = np.zeros((len(row_by_problem), columns.shape[1]))
    np.add.at(table, [row_by_problem[problem] for problem in problems], columns)
    return table


def divide_or_nan(
    numerators: NDArray[np.float64], denominators: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `numerators` divided by `denominators`, and NaN where `denominators` is 0."""
    return np.divide(
        numerators, denominators, out=np.full_like(denominators, np.nan), where=denominators > 0
    )


def compute_harmonic_mean(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 2ab / (a + b), and 0 where both are 0."""
    return 2 * a * b / np.where(a + b == 0, 1.0, a + b)


def compute_cohen_kappa(pair_counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Cohen's kappa: (observed - expected agreement) / (1 - expected agreement).

    Kappa is NaN if both judges give all steps the same class, because the expected agreement is
    then 1.

    Args:
        pair_counts: number of steps with each pair of classes [..., first judge's class, second
            judge's class].
    """
    total = pair_counts.sum((-2, -1))
    observed = divide_or_nan(np.trace(pair_counts, axis1=-2, axis2=-1), total)
    expected = divide_or_nan((pair_counts.sum(-1) * pair_counts.sum(-2)).sum(-1), total * total)
    return divide_or_nan(observed - expected, 1 - expected)


def make_nominal_alpha(
    names_by_unit: Sequence[Sequence[Hashable]],
) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
    """Return Krippendorff's alpha for nominal data as a function of sums over units, so that it can
    be bootstrapped.

    A unit is what the judges name, such as a step. alpha = 1 - observed / expected disagreement
    (Krippendorff 2011, Computing Krippendorff's Alpha-Reliability). It is NaN if all judges give
    all units the same name.

    Args:
        names_by_unit: names that the judges gave each unit, at least two names per unit.

    Returns:
        Each unit's part of the sums [units, 1 + names], and the function from sums to alpha.
    """
    names = {
        name: i
        for i, name in enumerate(dict.fromkeys(name for unit in names_by_unit for name in unit))
    }
    table = np.zeros((len(names_by_unit), 1 + len(names)))
    for row, unit in zip(table, names_by_unit, strict=True):
        for name in unit:
            row[1 + names[name]] += 1
        differing = len(unit) ** 2 - (row[1:] ** 2).sum()
        row[0] = differing / (len(unit) - 1)

    def compute_alpha(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        total = sums[..., 1:].sum(-1)
        expected = total**2 - (sums[..., 1:] ** 2).sum(-1)
        return 1 - divide_or_nan(sums[..., 0] * (total - 1), expected)

    return table, compute_alpha


# The functions below give shares and means of solutions, clustered by problem.
#
# Solutions of one problem are correlated, so an interval that treats them as independent is too
# narrow. A bootstrap holds a weight for every problem and resample in memory. These intervals are
# formulas, so they also work for runs with very many problems.


def estimate_clustered_share(hits: NDArray[np.float64], counts: NDArray[np.float64]) -> Estimate:
    """Estimate a share of solutions, with Clopper and Pearson's interval for the effective number
    of solutions.

    The effective number is the size of a sample of independent solutions whose share would have the
    same variance (Korn and Graubard 1998, Survey Methodology 24). If the share is 0 or 1, the
    variance cannot be estimated, and each problem counts as one solution.

    Args:
        hits: number of each problem's solutions that count as hits [problems].
        counts: number of each problem's solutions [problems], positive.
    """
    if not len(counts):
        return NOTHING
    total, share = counts.sum(), hits.sum() / counts.sum()
    effective = float(len(counts))
    if 0 < share < 1 and len(counts) > 1:
        quantile_ratio = stdtrit(total - 1, (1 + LEVEL) / 2) / stdtrit(
            len(counts) - 1, (1 + LEVEL) / 2
        )
        variance = _estimate_ratio_variance(hits - share * counts, total)
        # The effective number is at most the number of solutions, as if they were independent.
        effective = min(total, quantile_ratio**2 * share * (1 - share) / max(variance, 1e-300))
    right, tail = share * effective, (1 - LEVEL) / 2
    low = 0.0 if right == 0 else float(betaincinv(right, effective - right + 1, tail))
    high = 1.0 if share == 1 else float(betaincinv(right + 1, effective - right, 1 - tail))
    return Estimate(value=float(share), low=low, high=high)


def estimate_clustered_mean(
    sums: NDArray[np.float64], counts: NDArray[np.float64], *, low: float, high: float
) -> Estimate:
    """Estimate the mean of the terms in `sums`, with Student's t interval over problems.

    Args:
        sums: sum of each problem's terms [problems].
        counts: number of terms in each problem's sum [problems].
        low: smallest possible value of a term.
        high: largest possible value of a term.

    Returns:
        The estimate; `NOTHING` if fewer than two problems have a term.
    """
    has_value = counts > 0
    sums, counts = sums[has_value], counts[has_value]
    if len(counts) < 2:
        return NOTHING
    total, mean = counts.sum(), sums.sum() / counts.sum()
    half_width = stdtrit(len(counts) - 1, (1 + LEVEL) / 2) * np.sqrt(
        _estimate_ratio_variance(sums - mean * counts, total)
    )
    return Estimate(
        value=float(mean),
        low=float(max(low, mean - half_width)),
        high=float(min(high, mean + half_width)),
    )


def _estimate_ratio_variance(residuals: NDArray[np.float64], total: float) -> float:
    """Return the linearised variance (Taylor) of a ratio of sums over two problems or more."""
    count = len(residuals)
    return float(count / (count - 1) * (residuals**2).sum() / total**2)
