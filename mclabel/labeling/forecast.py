"""What a job will cost, from blocks of it that are done.

A block's cost is taken to be a base for each problem and a price for each character of their texts:
lengths are known of every problem without an engine, and where costs vary a lot they vary with
length. Both are fitted by weighted least squares, neither negative, and the fit is scaled to what
was seen in all (a ratio estimator, Cochran 1977, chapter 6). The pilot is a systematic sample of
the blocks in order of their length, so that long ones are in it in proportion, and a cost that does
not rise linearly does no harm. Intervals: bootstrap over blocks, widened to Student's t where there
are few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Floats = NDArray[np.float64]

RESAMPLES = 2000
LEVEL = 0.95


class CostModel:
    """Fits cost to number and length of problems; constant size, however many blocks are added."""

    def __init__(self) -> None:
        self._sums = np.zeros(_NUM_SUMS)

    def add(self, num_problems: float, num_chars: float, cost: float) -> None:
        """Take a block."""
        self._sums += _terms(np.array([[num_problems, num_chars, cost]]))[0]

    def predict(self, num_problems: float, num_chars: float) -> float | None:
        """Expected cost of problems; None before any block."""
        if not self._sums[0]:
            return None
        return float(_predicted(self._sums[None], num_problems, num_chars)[0])


_NUM_SUMS = 5


def _terms(blocks: Floats) -> Floats:
    """[n, 5] of blocks [n, 3]: what each adds to the sums that a fit rests on.

    Problems, characters, cost; and, the variance of a block's cost rising with its problems, what
    the weighted normal equations need beside these.
    """
    problems, chars, cost = blocks.T
    return np.stack([problems, chars, cost, chars**2 / problems, chars * cost / problems], axis=1)


def _predicted(sums: Floats, num_problems: float, num_chars: float) -> Floats:
    """[n] costs of problems, of sums [n, 5] over blocks.

    With blocks of m problems, x characters and cost y the fit of y = a m + b x, weighted by 1 / m,
    solves a sum(m) + b sum(x) = sum(y), a sum(x) + b sum(x^2 / m) = sum(x y / m).
    """
    m, x, y, xx, xy = sums.T
    with np.errstate(divide="ignore", invalid="ignore"):
        det = m * xx - x * x
        a, b = (xx * y - x * xy) / det, (m * xy - x * y) / det
        only_b = np.where(xx > 0, xy / xx, 0.0)
        sound = (det > 1e-9 * m * xx) & (a >= 0) & (b >= 0)
        # Else one of the two alone: that which leaves less.
        by_length = ~sound & (xx > 0) & (xy * only_b > y * y / m)
        a = np.where(sound, a, np.where(by_length, 0.0, y / m))
        b = np.where(sound, b, np.where(by_length, only_b, 0.0))
        seen = a * m + b * x
        scale = np.where(seen > 0, y / seen, 0.0)
    return np.asarray(scale * (a * num_problems + b * num_chars))


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


def predict(
    seen: Sequence[tuple[float, float, float]],
    num_problems: float,
    num_chars: float,
    *,
    seed: int = 0,
) -> Interval:
    """Cost of problems that are not done, from blocks that are.

    Args:
        seen: number of problems, characters and cost of each block, at least one.
        num_problems: that are left.
        num_chars: of these.
        seed: of the bootstrap.
    """
    count = len(seen)
    terms = _terms(np.array(seen, dtype=np.float64))
    expected = float(_predicted(terms.sum(0, keepdims=True), num_problems, num_chars)[0])
    if count == 1:
        return Interval(expected=expected, low=0.0, high=float("inf"))
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    totals = _predicted(draws @ terms, num_problems, num_chars)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    wider = float(student.ppf(1 - tail, count - 1) / student.ppf(1 - tail, np.inf))
    wider *= (count / (count - 1)) ** 0.5
    return Interval(
        expected=expected,
        low=max(0.0, expected - wider * (expected - float(low))),
        high=expected + wider * (float(high) - expected),
    )


def pilot_blocks(num_chars: Sequence[float], count: int, *, seed: int) -> frozenset[int]:
    """Numbers of the blocks of a pilot: every so-many-th in order of length.

    Args:
        num_chars: of each block of the job.
        count: blocks of the pilot, at most all.
        seed: of where to begin.
    """
    order = np.argsort(np.asarray(num_chars, dtype=np.float64), kind="stable")
    count = min(count, len(order))
    step = len(order) / max(1, count)
    start = random.Random(seed).random() * step
    return frozenset(int(order[int(start + i * step)]) for i in range(count))
