"""Confidence intervals of a success rate, for three kinds of stopping rule.

`clopper_pearson`: the number of trials was fixed in advance. `repeated_interval`: the number of
trials, up to a maximum (the horizon), may have depended on any observation. `StoppingRule`: the
counts at which sampling stops are known in advance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Floats = NDArray[np.float64]


@lru_cache(maxsize=65536)
def clopper_pearson(num_right: int, num_trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a binomial proportion (Clopper and Pearson 1934).

    The interval contains the true value with probability at least `level` if `num_trials` was
    fixed in advance.

    Args:
        num_right: number of successes, in [0, num_trials].
        num_trials: number of trials, at least 1.
        level: confidence level, in (0, 1).
    """
    low, high = _compute_clopper_pearson(np.array([num_right]), num_trials, 1 - level)
    return float(low[0]), float(high[0])


@lru_cache(maxsize=65536)
def repeated_interval(
    num_right: int, num_trials: int, *, horizon: int, level: float = 0.95
) -> tuple[float, float]:
    """Return an interval that holds after every trial, up to a horizon.

    With probability at least `level`, the intervals after trials 1..horizon all contain the true
    value. So the interval is valid under any stopping rule. These are repeated confidence
    intervals (Jennison and Turnbull 1989): Clopper-Pearson intervals at a stricter level, which an
    exact recursion over the possible counts calibrates. At horizon 64 they are about 1.25 times as
    wide as a plain interval; a mixture interval, which needs no horizon, is 1.5 times as wide.

    Args:
        num_right: number of successes so far.
        num_trials: number of trials so far, at most `horizon`.
        horizon: maximum number of trials that could have been made.
        level: confidence level of the whole sequence of intervals, in (0, 1).

    Raises:
        ValueError: there are more trials than the horizon.
    """
    if num_trials > horizon:
        raise ValueError(f"num_trials={num_trials}: must be <= horizon={horizon}")
    error = _find_single_interval_error(horizon, level)
    low, high = _compute_clopper_pearson(np.array([num_right]), num_trials, error)
    return float(low[0]), float(high[0])


def _compute_clopper_pearson(
    num_right: NDArray[np.int64], num_trials: int, error_probability: float
) -> tuple[Floats, Floats]:
    """Return the interval bounds for each number of successes in the same number of trials."""
    num_wrong = num_trials - num_right
    low = np.where(
        num_right == 0,
        0.0,
        betaincinv(np.maximum(num_right, 1), num_wrong + 1, error_probability / 2),
    )
    high = np.where(
        num_wrong == 0,
        1.0,
        betaincinv(num_right + 1, np.maximum(num_wrong, 1), 1 - error_probability / 2),
    )
    return low, high


MAX_EXACT_HORIZON = 128
"""Largest horizon for which the error of single intervals is computed, which takes seconds."""
ERRORS_AT_95 = {256: 0.0056037, 512: 0.0043148, 1024: 0.0034809}
"""Results of `_compute_single_interval_error` at level 0.95, by horizon. They are stored because
the last takes minutes to compute."""


def _find_single_interval_error(horizon: int, sequence_level: float) -> float:
    """Return the error probability at which single intervals must be computed so that the whole
    sequence has its level.

    A horizon without an exact result uses a longer one, whose wider intervals are also valid.
    """
    longer_horizons = [
        stored_horizon for stored_horizon in ERRORS_AT_95 if stored_horizon >= horizon
    ]
    if horizon > MAX_EXACT_HORIZON and sequence_level == 0.95 and longer_horizons:
        return ERRORS_AT_95[min(longer_horizons)]
    return _compute_single_interval_error(horizon, sequence_level)


@lru_cache
def _compute_single_interval_error(horizon: int, sequence_level: float) -> float:
    """Compute the error probability of each single interval by bisection."""
    if horizon == 1:
        return 1 - sequence_level
    low, high = np.log((1 - sequence_level) / (2 * horizon)), np.log(1 - sequence_level)
    for _ in range(14):
        middle = (low + high) / 2
        if _compute_largest_miss_probability(horizon, float(np.exp(middle))) <= 1 - sequence_level:
            low = middle
        else:
            high = middle
    return float(np.exp(low))


def _compute_largest_miss_probability(horizon: int, error_probability: float) -> float:
    """Return the largest probability, over p, that any of the intervals 1..horizon misses p.

    The probability jumps where p crosses a bound of an interval, and is smooth between bounds. So
    the maximum is taken over both sides of the bounds, and over a grid.
    """
    bounds = [
        _compute_clopper_pearson(np.arange(n + 1), n, error_probability)
        for n in range(1, horizon + 1)
    ]
    jump_points = np.concatenate(
        [bound_values for interval_bounds in bounds for bound_values in interval_bounds]
    )
    jump_points = np.unique(np.round(jump_points[jump_points < 0.5], 5))
    jump_points = jump_points[
        jump_points > 0
    ]  # after rounding: p = -1e-6 would lie outside every interval
    sampled_jumps = jump_points[:: max(1, len(jump_points) // 400)]
    p = np.concatenate([np.linspace(0.001, 0.5, 200), sampled_jumps - 1e-6, sampled_jumps + 1e-6])[
        :, None
    ]
    count_probabilities = np.zeros((len(p), horizon + 1))
    count_probabilities[:, 0] = 1.0
    missed = np.zeros(len(p))
    for n, (low, high) in enumerate(bounds, start=1):
        count_probabilities[:, 1 : n + 1] = (
            count_probabilities[:, 1 : n + 1] * (1 - p) + count_probabilities[:, :n] * p
        )
        count_probabilities[:, :1] *= 1 - p
        reached = count_probabilities[:, : n + 1]
        missed_now = np.where((p < low) | (p > high), reached, 0.0)
        missed += missed_now.sum(1)
        reached -= missed_now
    return float(missed.max())


GRID = np.sin(np.linspace(0, np.pi / 2, 2049)) ** 2
"""Success rates at which tail probabilities are evaluated, dense near 0 and 1. The bounds of
intervals are rounded outward to this grid."""


@dataclass(frozen=True, kw_only=True)
class StoppingRule:
    """Rule that stops after the first look with a success, and always at the last look.

    The stopping points are pairs (right, trials), and the sequences of outcomes that lead to each
    of them can be counted. The interval inverts the tail probabilities of the ordered stopping
    points, and covers at least as often as its level.
    """

    looks: tuple[int, ...]
    """Increasing numbers of trials after which the rule decides whether to stop."""

    def ends_at(self, right: int, trials: int) -> bool:
        """Return whether these counts are a stopping point that the rule can reach."""
        return (right, trials) in self._index_by_point

    def interval(self, right: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
        """Return the lower and upper bound of the rate after the rule has stopped at these
        counts.
        """
        below, above = self._tail_probabilities[self._index_by_point[right, trials]]
        tail = (1 - level) / 2
        low = int(np.argmax(above > tail))
        high = len(GRID) - 1 - int(np.argmax(below[::-1] > tail))
        return float(GRID[max(0, low - 1)]), float(GRID[min(len(GRID) - 1, high + 1)])

    @cached_property
    def _stopping_points(self) -> _StoppingPoints:
        # All trials before the last batch failed, so the sequences differ in that batch alone.
        points = [
            (right, look, comb(look - done, right))
            for done, look in pairwise((0, *self.looks))
            for right in range(0 if look == self.looks[-1] else 1, look - done + 1)
        ]
        right, trials, ways = zip(*points, strict=True)
        return _StoppingPoints(np.array(right), np.array(trials), np.array(ways, dtype=np.float64))

    @cached_property
    def _index_by_point(self) -> dict[tuple[int, int], int]:
        points = self._stopping_points
        return {(int(k), int(n)): i for i, (k, n) in enumerate(zip(points.right, points.trials))}  # noqa: B905

    @cached_property
    def _tail_probabilities(self) -> NDArray[np.float64]:
        """Tail probabilities [points, 2, grid] at each rate of `GRID`: first the probability of
        stopping at this or a lower point, then at this or a higher point.
        """
        points = self._stopping_points
        wrong = points.trials - points.right
        with np.errstate(divide="ignore", invalid="ignore"):
            log_probability = np.log(points.num_sequences)[:, None]
            log_probability = log_probability + np.where(
                points.right[:, None], points.right[:, None] * np.log(GRID), 0.0
            )
            log_probability = log_probability + np.where(
                wrong[:, None], wrong[:, None] * np.log1p(-GRID), 0.0
            )
        probability = np.exp(log_probability)
        # Points are ordered by their share of successes, shrunk towards 1/2, so that 0 successes in
        # many trials rank below 0 successes in few trials.
        order = np.argsort((points.right + 0.5) / (points.trials + 1), kind="stable")
        below = np.empty_like(probability)
        below[order] = np.cumsum(probability[order], axis=0)
        return np.stack([below, 1 - below + probability], axis=1)


@lru_cache(maxsize=4096)
def stop_at_first_success(*, batch: int, cap: int) -> StoppingRule:
    """Return the rule that stops after the first batch of `batch` trials with a success, or after
    `cap` trials.
    """
    return StoppingRule(looks=(*range(batch, cap, batch), cap))


@dataclass(frozen=True)
class _StoppingPoints:
    """Stopping points of a rule, and the number of outcome sequences that lead to each point."""

    right: NDArray[np.int64]
    trials: NDArray[np.int64]
    num_sequences: Floats
