"""Confidence intervals of a success rate, by what is known of when the sampling stopped.

`clopper_pearson`: the number of trials was fixed. `repeated_interval`: it may have depended on
anything seen, up to a horizon. `Boundary`: the stopping points of the rule are known in advance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

Floats = NDArray[np.float64]


@lru_cache(maxsize=65536)
def clopper_pearson(num_right: int, num_trials: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a binomial proportion (Clopper and Pearson 1934).

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
    """Return an interval that holds after every trial, up to a horizon.

    Covers the true value at all trials 1..horizon at once with probability at least `level`, so
    whatever decided to stop, it covers where one stopped: repeated confidence intervals
    (Jennison and Turnbull 1989). They are Clopper-Pearson's at a stricter level, calibrated by
    exact recursion over the lattice of counts; at horizon 64 about 1.25 times as wide, where a
    mixture without horizon is 1.5 times as wide.

    Args:
        num_right: successes so far.
        num_trials: trials so far, at most `horizon`.
        horizon: trials after which sampling ends for certain.
        level: level of the whole sequence, in (0, 1).

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
    """Return the bounds for each number of successes of the same number of trials."""
    wrong = trials - right
    low = np.where(right == 0, 0.0, betaincinv(np.maximum(right, 1), wrong + 1, error / 2))
    high = np.where(wrong == 0, 1.0, betaincinv(right + 1, np.maximum(wrong, 1), 1 - error / 2))
    return low, high


@lru_cache
def _repeated_error(horizon: int, level: float) -> float:
    """Return the error of each single interval that gives the sequence its level."""
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
    """Return the maximum over p of the probability that one of the intervals 1..horizon misses p.

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


GRID = np.sin(np.linspace(0, np.pi / 2, 2049)) ** 2
"""Rates at which tails are evaluated, dense near 0 and 1; bounds are rounded outward to it."""


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """Stopping rule: stop at look i if `right <= low[i]` or `right >= high[i]`, and always at the
    last.

    Such a rule walks over a lattice of (right, trials) until it meets a boundary. The number of
    ways to reach each boundary point is countable. The chance of the first trial's success given
    the point is the unbiased estimate of the rate (Girshick, Mosteller and Savage 1946), and
    inverting the tails of an ordering of the points gives an interval that covers at least as often
    as its level.
    """

    looks: tuple[int, ...]
    """Rising numbers of trials after which the rule looks."""
    low: tuple[int, ...]
    """-1: never."""
    high: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.looks or not len(self.looks) == len(self.low) == len(self.high):
            raise ValueError("a boundary needs as many bounds as looks, at least one")
        if any(b <= a for a, b in zip((0, *self.looks), self.looks, strict=False)):
            raise ValueError(f"looks={self.looks}: must rise from >= 1")

    def stops(self, right: int, trials: int) -> bool:
        """Return whether the rule has stopped at these counts; they must be those of a look."""
        look = self.looks.index(trials)
        return trials == self.looks[-1] or right <= self.low[look] or right >= self.high[look]

    def ends_at(self, right: int, trials: int) -> bool:
        """Return whether the rule can stop at these counts and at no look before them."""
        return (right, trials) in self._index

    def value(self, right: int, trials: int) -> float:
        """Return the unbiased estimate of the rate after the rule has stopped at these counts."""
        point = self._index[right, trials]
        return float(self._points.first[point] / self._points.ways[point])

    def interval(self, right: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
        """Return the bounds of the rate after the rule has stopped at these counts."""
        below, above = self._tails[self._index[right, trials]]
        tail = (1 - level) / 2
        low = int(np.argmax(above > tail))
        high = len(GRID) - 1 - int(np.argmax(below[::-1] > tail))
        return float(GRID[max(0, low - 1)]), float(GRID[min(len(GRID) - 1, high + 1)])

    @cached_property
    def _points(self) -> _Points:
        cap = self.looks[-1]
        alive = np.zeros((2, cap + 1))  # ways that are still going on: all; first trial a success
        alive[0, 0] = 1.0
        points: list[tuple[int, int, float, float]] = []
        done = 0
        for look, low, high in zip(self.looks, self.low, self.high, strict=True):
            size = look - done
            step = np.array([comb(size, j) for j in range(size + 1)], dtype=np.float64)
            grown = np.stack([np.convolve(row, step)[: cap + 1] for row in alive])
            if done == 0:
                first = np.array([comb(size - 1, j - 1) if j else 0 for j in range(size + 1)])
                grown[1, : size + 1] = first
            right = np.arange(cap + 1)
            stop = (right <= low) | (right >= high) | (look == cap)
            for k in np.flatnonzero(stop & (grown[0] > 0)):
                points.append((int(k), look, grown[0, k], grown[1, k]))
            alive = np.where(stop, 0.0, grown)
            done = look
        right_, trials, ways, first_ = zip(*points, strict=True)
        return _Points(np.array(right_), np.array(trials), np.array(ways), np.array(first_))

    @cached_property
    def _index(self) -> dict[tuple[int, int], int]:
        points = self._points
        return {(int(k), int(n)): i for i, (k, n) in enumerate(zip(points.right, points.trials))}  # noqa: B905

    @cached_property
    def _tails(self) -> NDArray[np.float64]:
        """[points, 2, grid]: chance of this point or a lower one; of this one or a higher one."""
        points = self._points
        wrong = points.trials - points.right
        with np.errstate(divide="ignore", invalid="ignore"):
            log = np.log(points.ways)[:, None]
            log = log + np.where(points.right[:, None], points.right[:, None] * np.log(GRID), 0.0)
            log = log + np.where(wrong[:, None], wrong[:, None] * np.log1p(-GRID), 0.0)
        chance = np.exp(log)
        # Points are ordered by a share that is drawn a little to the middle, so that no success
        # in many trials is lower than no success in few.
        order = np.argsort((points.right + 0.5) / (points.trials + 1), kind="stable")
        below = np.empty_like(chance)
        below[order] = np.cumsum(chance[order], axis=0)
        return np.stack([below, 1 - below + chance], axis=1)


@lru_cache(maxsize=4096)
def first_success(*, batch: int, cap: int) -> Boundary:
    """Trials in batches until one holds a success, `cap` at most."""
    looks = tuple(dict.fromkeys([*range(batch, cap, batch), cap]))
    return Boundary(looks=looks, low=(-1,) * len(looks), high=(1,) * len(looks))


@dataclass(frozen=True)
class _Points:
    """Stopping points of a rule, and the number of ways to each."""

    right: NDArray[np.int64]
    trials: NDArray[np.int64]
    ways: Floats
    first: Floats
    """Number of these ways whose first trial was a success."""
