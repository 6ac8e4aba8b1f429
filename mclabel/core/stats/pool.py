"""Estimates the mean over a pool of solutions from those that were chosen to be labelled.

`mclabel.select.pool` chooses some solutions with certainty and draws a fixed number uniformly from
the others, so inclusion probabilities are known. Horvitz and Thompson's estimate (1952) adds the
values of the certain solutions and the scaled-up values of the drawn ones. Only the second part has
a sampling error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class PoolMean:
    """An estimate of the mean over a pool of solutions, with its interval."""

    mean: float
    """Estimated mean."""
    low: float
    """Lower bound of the interval. NaN, like `high`, if fewer than two solutions were drawn and
    other solutions of the pool have no label."""
    high: float
    num_drawn: int
    """Number of labelled solutions that were drawn. The interval is estimated from them."""


def estimate_pool_mean(
    values: Sequence[float],
    probabilities: Sequence[float],
    *,
    num_pool: int,
    num_certain: int,
    level: float = 0.95,
) -> PoolMean:
    """Estimate the mean of a value over a pool, with its interval.

    The mean of the drawn solutions estimates the mean of all solutions with a probability below 1.
    Its interval is Wilson's (1927) if all values are 0 or 1. Otherwise it is Hall's (1992, "On the
    removal of skewness by transformation"), with quantiles of Student's t. Both are narrowed for
    sampling without replacement.

    Chosen solutions without a label must be omitted. The estimate assumes that their mean equals
    the mean of the labelled solutions, separately for solutions chosen with certainty (probability
    1) and for drawn ones.

    Args:
        values: values of the labelled solutions of one selection, finite.
        probabilities: probability of choosing each of these solutions (`selection_probability`).
        num_pool: number of solutions in the pool, from the manifest.
        num_certain: number of solutions whose probability is 1, from the manifest.
        level: confidence level of the interval, in (0, 1).

    Raises:
        ValueError: no certain or no drawn solution has a value, or the probabilities are not those
            of a single selection with these numbers.
    """
    y, pi = np.asarray(values, dtype=float), np.asarray(probabilities, dtype=float)
    _check_sample(y, pi, num_pool, num_certain)
    certain, drawn = y[pi == 1], y[pi < 1]
    num_others = num_pool - num_certain
    certain_sum = float(certain.mean()) * num_certain if num_certain else 0.0
    if not num_others:
        mean = certain_sum / num_pool
        return PoolMean(mean=mean, low=mean, high=mean, num_drawn=0)
    mean, low, high = _estimate_drawn_mean(drawn, num_others, level)
    mean, low, high = ((certain_sum + num_others * value) / num_pool for value in (mean, low, high))
    return PoolMean(mean=mean, low=low, high=high, num_drawn=len(drawn))


def _check_sample(values: Floats, probabilities: Floats, num_pool: int, num_certain: int) -> None:
    if values.shape != probabilities.shape or values.ndim != 1:
        raise ValueError(
            f"values have shape {values.shape} and probabilities {probabilities.shape}: both must "
            "be lists of the "
            "same length"
        )
    if not np.isfinite(values).all():
        raise ValueError("values: must be finite. Omit solutions without a value")
    if not ((probabilities > 0) & (probabilities <= 1)).all():
        raise ValueError("probabilities: must be in (0, 1]")
    if not 0 <= num_certain <= num_pool or num_pool < 1:
        raise ValueError(f"num_certain={num_certain}: must be in 0..num_pool={num_pool}")
    if len(probabilities_below_one := np.unique(probabilities[probabilities < 1])) > 1:
        raise ValueError(
            "probabilities below 1 are "
            f"{', '.join(f'{p:g}' for p in probabilities_below_one[:3])}: must all be "
            "equal, because one selection has one such probability. Estimate each selection alone"
        )
    num_drawn = int((probabilities < 1).sum())
    if num_certain and not (probabilities == 1).any():
        raise ValueError(
            f"num_certain={num_certain}: no solution with probability 1 has a value. Label these "
            "solutions"
        )
    if num_certain < num_pool and not num_drawn:
        raise ValueError(
            f"{num_pool - num_certain} of the pool's {num_pool} solutions are not represented, "
            "because no solution was drawn at random. Select with a uniform share above 0"
        )
    if num_drawn and num_drawn > probabilities_below_one[0] * (num_pool - num_certain) + 1e-6:
        raise ValueError(
            f"{num_drawn} values with probability {probabilities_below_one[0]:g}: more than were "
            f"drawn from {num_pool - num_certain} solutions. Give num_pool and num_certain of the "
            "selection's manifest"
        )


def _estimate_drawn_mean(
    drawn_values: Floats, population_size: int, level: float
) -> tuple[float, float, float]:
    """Return the mean of a simple random sample, and the lower and upper bound for the mean of the
    sampled population.
    """
    mean, n = float(drawn_values.mean()), len(drawn_values)
    if n == population_size:
        return mean, mean, mean
    if n < 2:
        return mean, nan, nan
    quantile = float(stdtrit(n - 1, (1 + level) / 2))
    if np.isin(drawn_values, (0.0, 1.0)).all():
        return mean, *_compute_wilson_interval(
            mean, n * (population_size - 1) / (population_size - n), quantile
        )
    deviation = float(drawn_values.std(ddof=1)) * sqrt(1 - n / population_size)
    if deviation == 0:
        return mean, mean, mean
    skew = float(((drawn_values - mean) ** 3).mean() / drawn_values.std() ** 3)
    low, high = (
        deviation / sqrt(n) * _correct_for_skewness(bound, skew, n)
        for bound in (quantile, -quantile)
    )
    return mean, mean - low, mean - high


def _compute_wilson_interval(
    share: float, effective_sample_size: float, quantile: float
) -> tuple[float, float]:
    """Return Wilson's interval for a share.

    Args:
        share: observed share.
        effective_sample_size: size of an equally precise sample from an infinite population.
        quantile: quantile of the interval's level.
    """
    middle = (share + quantile * quantile / (2 * effective_sample_size)) / (
        1 + quantile * quantile / effective_sample_size
    )
    half = (
        quantile
        / (1 + quantile * quantile / effective_sample_size)
        * sqrt(
            share * (1 - share) / effective_sample_size
            + quantile * quantile / (4 * effective_sample_size * effective_sample_size)
        )
    )
    return max(0.0, middle - half), min(1.0, middle + half)


def _correct_for_skewness(quantile: float, skew: float, sample_size: int) -> float:
    """Correct a quantile of a studentised mean for skewness, by Hall's inverse cubic."""
    if abs(skew) < 1e-9:
        return quantile
    radicand = 1 + skew * (quantile / sqrt(sample_size) - skew / (6 * sample_size))
    return float(3 * sqrt(sample_size) / skew * (np.cbrt(radicand) - 1))
