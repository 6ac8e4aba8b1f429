"""Percentile bootstrap over problems: solutions of one problem go together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_RESAMPLES = 1000
LEVEL = 0.95


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure with its bootstrap interval; all None where there is nothing to measure."""

    value: float | None
    low: float | None
    high: float | None


def resample_weights(num_problems: int, seed: int) -> NDArray[np.float64]:
    """How often each problem is drawn in each resample [resamples, problems]."""
    rng = np.random.default_rng(seed)
    even = [1 / max(1, num_problems)] * num_problems
    return rng.multinomial(num_problems, even, NUM_RESAMPLES).astype(np.float64)


def ratio_estimate(
    top: NDArray[np.float64], bottom: NDArray[np.float64], weights: NDArray[np.float64]
) -> Estimate:
    """Sum of `top` over sum of `bottom`.

    Args:
        top: [problems]
        bottom: [problems]
        weights: of the resamples; the same weights make estimates paired.
    """
    if not len(top) or bottom.sum() == 0:
        return Estimate(value=None, low=None, high=None)
    tops, bottoms = weights @ top, weights @ bottom
    usable = bottoms > 0
    low, high = np.quantile(tops[usable] / bottoms[usable], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(value=float(top.sum() / bottom.sum()), low=float(low), high=float(high))


def mean_estimate(values: NDArray[np.float64], weights: NDArray[np.float64]) -> Estimate:
    """Mean over problems, those with NaN left out.

    Args:
        values: [problems]
        weights: of the resamples.
    """
    there = ~np.isnan(values)
    return ratio_estimate(np.where(there, values, 0.0), there.astype(np.float64), weights)
