"""What a job will cost, from blocks of it that are done.

A block's cost is taken to be a base for each problem, a price for each character of their texts and
one for the squares of their lengths: lengths are known of every problem without an engine, and
where costs vary a lot they vary with length. The three are fitted by weighted least squares, none
negative, and the fit is scaled to what was seen in all (a ratio estimator, Cochran 1977, chapter
6). The pilot is a systematic sample of the blocks in order of their length, so that long ones are
in it in proportion. Intervals: bootstrap over blocks, widened to Student's t where there are few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.stats import t as student

from mclabel.data.sizes import Size

Floats = NDArray[np.float64]

RESAMPLES = 1000
LEVEL = 0.95


class CostModel:
    """Fits cost to the sizes of blocks; of constant size itself, however many are added."""

    def __init__(self) -> None:
        self._gram, self._right = np.zeros((3, 3)), np.zeros(3)
        self._sums, self._cost = np.zeros(3), 0.0

    def add(self, size: Size, cost: float) -> None:
        """Take a block; the variance of its cost is taken to rise with its problems."""
        row = _row(size)
        self._gram += np.outer(row, row) / size.num_problems
        self._right += row * cost / size.num_problems
        self._sums += row
        self._cost += cost

    def predict(self, size: Size) -> float | None:
        """Expected cost of problems; None before any block."""
        if not self._sums[0]:
            return None
        # Of A x = b with A.T A the Gram matrix: a square root of it serves as A.
        scale = 1 / np.maximum(self._sums, 1e-300)
        values, vectors = np.linalg.eigh(self._gram * np.outer(scale, scale))
        roots = np.sqrt(np.maximum(values, 0))
        kept = roots > 1e-7 * roots.max()
        left = roots[kept, None] * vectors.T[kept]
        right = (vectors.T[kept] @ (self._right * scale)) / roots[kept]
        fit = nnls(left, right)[0] * scale
        seen = float(fit @ self._sums)
        return float(fit @ _row(size)) * self._cost / seen if seen else 0.0


def _row(size: Size) -> Floats:
    return np.array([size.num_problems, size.num_chars, size.num_squares], dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """An expected amount, and where it lies with 95%."""

    expected: float
    low: float
    high: float

    def times(self, factor: float, plus: float = 0.0) -> Interval:
        """This amount times a number, and another one on top."""
        ends = (self.expected, self.low, self.high)
        expected, low, high = (factor * end + plus for end in ends)
        return Interval(expected=expected, low=low, high=high)


def predict(seen: Sequence[tuple[Size, float]], left: Size, *, seed: int = 0) -> Interval:
    """Cost of problems that are not done, from blocks that are.

    Args:
        seen: size and cost of each block, at least one.
        left: size of what is left.
        seed: of the bootstrap.
    """
    count = len(seen)
    expected = _predicted(seen, left)
    if count == 1:
        return Interval(expected=expected, low=0.0, high=float("inf"))
    rng = np.random.default_rng(seed)
    draws = rng.integers(count, size=(RESAMPLES, count)).tolist()
    totals = [_predicted([seen[i] for i in draw], left) for draw in draws]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    wider = float(student.ppf(1 - tail, count - 1) / student.ppf(1 - tail, np.inf))
    wider *= (count / (count - 1)) ** 0.5
    return Interval(
        expected=expected,
        low=max(0.0, expected - wider * (expected - float(low))),
        high=expected + wider * (float(high) - expected),
    )


def _predicted(seen: Sequence[tuple[Size, float]], left: Size) -> float:
    model = CostModel()
    for size, cost in seen:
        model.add(size, cost)
    return model.predict(left) or 0.0


def pilot_blocks(sizes: Sequence[Size], count: int, *, seed: int) -> frozenset[int]:
    """Numbers of the blocks of a pilot: every so-many-th in order of length.

    Args:
        sizes: of all blocks of the job.
        count: blocks of the pilot, at most all.
        seed: of where to begin.
    """
    order = sorted(range(len(sizes)), key=lambda number: sizes[number].num_chars)
    count = min(count, len(order))
    step = len(order) / max(1, count)
    start = random.Random(seed).random() * step
    return frozenset(order[int(start + i * step)] for i in range(count))
