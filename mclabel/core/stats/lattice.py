"""Exact values and intervals under stopping rules that are known in advance.

A rule that stops by its own counts alone walks over a lattice of (right, trials) until it meets a
boundary. The number of ways to reach each boundary point is countable, and everything follows:
the chance of the first trial's success given the point is the unbiased estimate of the rate
(Girshick, Mosteller and Savage 1946), and inverting the tails of an ordering of the points gives an
interval that covers at least as often as its level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import comb

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GRID = np.sin(np.linspace(0, np.pi / 2, 2049)) ** 2
"""Rates at which tails are evaluated, dense near 0 and 1; bounds are rounded outward to it."""


@dataclass(frozen=True, kw_only=True)
class Boundary:
    """When to stop: at look i, if `right <= low[i]` or `right >= high[i]`; always at the last."""

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
        """Whether the rule has stopped at these counts; they must be those of a look."""
        look = self.looks.index(trials)
        return trials == self.looks[-1] or right <= self.low[look] or right >= self.high[look]

    def ends_at(self, right: int, trials: int) -> bool:
        """Whether the rule can stop at these counts and at no look before them."""
        return (right, trials) in self._index

    def value(self, right: int, trials: int) -> float:
        """The unbiased estimate of the rate, having stopped at a boundary point."""
        point = self._index[right, trials]
        return float(self._points.first[point] / self._points.ways[point])

    def interval(self, right: int, trials: int, *, level: float = 0.95) -> tuple[float, float]:
        """Bounds of the rate, having stopped at a boundary point."""
        below, above = self._tails[self._index[right, trials]]
        tail = (1 - level) / 2
        low = int(np.argmax(above > tail))
        high = len(GRID) - 1 - int(np.argmax(below[::-1] > tail))
        return float(GRID[max(0, low - 1)]), float(GRID[min(len(GRID) - 1, high + 1)])

    @cached_property
    def _points(self) -> _Points:
        return _walk(self)

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
    """Where a rule can stop, and in how many ways."""

    right: NDArray[np.int64]
    trials: NDArray[np.int64]
    ways: Floats
    first: Floats
    """Of these ways, those whose first trial was a success."""


def _walk(boundary: Boundary) -> _Points:
    cap = boundary.looks[-1]
    alive = np.zeros((2, cap + 1))  # ways that are still going on: all; first trial a success
    alive[0, 0] = 1.0
    found: list[tuple[int, int, float, float]] = []
    done = 0
    for look, low, high in zip(boundary.looks, boundary.low, boundary.high, strict=True):
        size = look - done
        step = np.array([comb(size, j) for j in range(size + 1)], dtype=np.float64)
        grown = np.stack([np.convolve(row, step)[: cap + 1] for row in alive])
        if done == 0:
            first = np.array([comb(size - 1, j - 1) if j else 0 for j in range(size + 1)])
            grown[1, : size + 1] = first
        right = np.arange(cap + 1)
        stop = (right <= low) | (right >= high) | (look == cap)
        for k in np.flatnonzero(stop & (grown[0] > 0)):
            found.append((int(k), look, grown[0, k], grown[1, k]))
        alive = np.where(stop, 0.0, grown)
        done = look
    right_, trials, ways, first_ = zip(*found, strict=True)
    return _Points(np.array(right_), np.array(trials), np.array(ways), np.array(first_))
