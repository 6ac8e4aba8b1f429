"""Confidence intervals of a success rate, by what is known of when the sampling stopped.

`clopper_pearson`: the number of trials was fixed. `repeated_interval`: it may have depended on
anything seen, up to a horizon. Rules whose stopping points are known in advance have exact
intervals of their own (`mclabel.core.stats.lattice`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Floats = NDArray[np.float64]


@lru_cache(maxsize=65536)
def clopper_pearson(num_right: int, num_trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Exact interval of a binomial proportion (Clopper and Pearson 1934).

    Covers the true value with probability at least `level` when `num_trials` was fixed
    beforehand.

    Raises:
        ValueError: not 0 <= num_right <= num_trials, or no trials.
    """
    _check(num_right, num_trials)
    low, high = _clopper_pearson(np.array([num_right]), num_trials, 1 - level)
    return float(low[0]), float(high[0])


@lru_cache(maxsize=65536)
def repeated_interval(
    num_right: int, num_trials: int, *, horizon: int, level: float = 0.95
) -> tuple[float, float]:
    """Interval that may be looked at after every trial, up to a horizon.

    Covers the true value at all trials 1..horizon at once with probability at least `level`, so
    whatever decided to stop, it covers where one stopped: repeated confidence intervals
    (Jennison and Turnbull 1989). They are Clopper-Pearson's at a stricter level, calibrated by
    exact recursion over the lattice of counts; at horizon 64 about 1.25 times as wide, where a
    mixture without horizon is 1.5 times as wide.

    Args:
        num_right: successes so far.
        num_trials: trials so far, at most `horizon`.
        horizon: trials after which sampling ends for certain.
        level: of the whole sequence.

    Raises:
        ValueError: impossible counts, or more trials than the horizon.
    """
    _check(num_right, num_trials)
    if num_trials > horizon:
        raise ValueError(f"num_trials={num_trials}: must be <= horizon={horizon}")
    error = _repeated_error(horizon, level)
    low, high = _clopper_pearson(np.array([num_right]), num_trials, error)
    return float(low[0]), float(high[0])


def _check(num_right: int, num_trials: int) -> None:
    if num_trials < 1 or not 0 <= num_right <= num_trials:
        raise ValueError(
            f"num_right={num_right}, num_trials={num_trials}: need 0 <= right <= n, n >= 1"
        )


def _clopper_pearson(right: NDArray[np.int64], trials: int, error: float) -> tuple[Floats, Floats]:
    """Bounds for each number of successes of the same number of trials."""
    wrong = trials - right
    low = np.where(right == 0, 0.0, betaincinv(np.maximum(right, 1), wrong + 1, error / 2))
    high = np.where(wrong == 0, 1.0, betaincinv(right + 1, np.maximum(wrong, 1), 1 - error / 2))
    return low, high


@lru_cache
def _repeated_error(horizon: int, level: float) -> float:
    """The error of each single interval that gives the sequence its level."""
    if horizon == 1:
        return 1 - level
    low, high = np.log((1 - level) / (2 * horizon)), np.log(1 - level)
    for _ in range(14):
        middle = (low + high) / 2
        if _crossing(horizon, float(np.exp(middle))) <= 1 - level:
            low = middle
        else:
            high = middle
    return float(np.exp(low))


def _crossing(horizon: int, error: float) -> float:
    """Largest chance over p that one of the intervals 1..horizon misses p.

    Between two bounds of intervals the chance is smooth in p, at a bound it jumps: so p runs
    over both sides of the bounds of the widest lattice, and a grid.
    """
    bounds = [_clopper_pearson(np.arange(n + 1), n, error) for n in range(1, horizon + 1)]
    jumps = np.concatenate([b for pair in bounds for b in pair])
    jumps = np.unique(np.round(jumps[(jumps > 0) & (jumps < 0.5)], 5))
    thinned = jumps[:: max(1, len(jumps) // 400)]
    p = np.concatenate([np.linspace(0.001, 0.5, 200), thinned - 1e-6, thinned + 1e-6])[:, None]
    alive = np.zeros((len(p), horizon + 1))
    alive[:, 0] = 1.0
    missed = np.zeros(len(p))
    for n, (low, high) in enumerate(bounds, start=1):
        alive[:, 1 : n + 1] = alive[:, 1 : n + 1] * (1 - p) + alive[:, :n] * p
        alive[:, :1] *= 1 - p
        here = alive[:, : n + 1]
        miss = np.where((p < low) | (p > high), here, 0.0)
        missed += miss.sum(1)
        here -= miss
    return float(missed.max())
