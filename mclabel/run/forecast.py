"""Forecasts the cost of a job from the sizes of its items and the costs of finished blocks.

A block's cost is modelled as a base per item, an amount per character and one per squared length,
fitted by weighted least squares without negative terms and scaled to the observed total (a ratio
estimator, Cochran 1977, chapter 6).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Floats = NDArray[np.float64]

RESAMPLES = 1000
LEVEL = 0.95
NUM_COEFFICIENTS = 3


class CostModel:
    """Fits cost to the sizes of blocks; of constant size itself, however many are added."""

    def __init__(self) -> None:
        self._terms = np.zeros(_NUM_TERMS)

    def add(self, size: Size, cost: float) -> None:
        """Record a block's cost, whose variance is taken to rise with the number of its items."""
        self._terms += _terms(size, cost)

    def predict(self, size: Size) -> float | None:
        """Return the expected cost of items of this size; None before any block."""
        return _predicted(self._terms, _row(size)) if self._terms.any() else None


class Remainder:
    """Forecasts what a running job has yet to spend, in tokens."""

    def __init__(self, *, num_items: int, size: Size | None = None) -> None:
        """Begin with nothing done.

        Args:
            num_items: number of items that this run has to do.
            size: size of all items of the job, of which these are a share like any other; None if
                unknown.
        """
        self._num_items, self._size = num_items, size
        self._committed, self._model = Size(), CostModel()
        self._committed_tokens = 0

    def commit(self, size: Size, num_tokens: int) -> None:
        """Record the size and cost of a committed block."""
        self._committed += size
        self._committed_tokens += num_tokens
        self._model.add(size, num_tokens)

    def left(
        self, *, num_done: int, num_open: int, done_tokens: int, open_tokens: int
    ) -> float | None:
        """Return the expected tokens; None before the first item is done.

        Of items that were begun together, those that end first cost little: their mean is too
        low, while all tokens over the items that have ended (which would be right were costs
        exponential) are too high where costs are alike. Until half of what is done is committed,
        an item that is not begun is taken to cost the geometric mean of the two, later what the
        fit to the blocks says. An item that is begun has a share of the mean cost left that falls
        as more of those that are begun are done, and at least what the mean exceeds its cost by.

        Args:
            num_done: items done by this run, those of running blocks included.
            num_open: items that are begun and not done.
            done_tokens: tokens that the finished items have cost.
            open_tokens: tokens that the running blocks have cost so far.
        """
        if not num_done:
            return None
        others = max(0, self._committed_tokens + open_tokens - done_tokens)
        begun = num_done + num_open
        share = float((num_open / begun) ** _AGEING)
        mean = (done_tokens + others) / (begun - share * num_open)
        of_open = max(max(share, _RESIDUE) * mean * num_open, mean * num_open - others)
        of_new = sqrt(done_tokens * (done_tokens + others)) / num_done
        num_committed = self._committed.num_items
        if self._size is not None and 2 * num_committed >= num_done:
            whole, committed = (self._model.predict(s) for s in (self._size, self._committed))
            if whole is not None and committed is not None:
                rest = whole * self._num_items / self._size.num_items - committed
                of_new = max(0.0, rest) / max(1, self._num_items - num_committed)
        return of_open + of_new * max(0, self._num_items - begun)


_AGEING = 0.25
"""Rate at which the expected remaining cost of an open item falls with the number of finished
items; 0 would be that of exponential costs. 0.25 was chosen on one recorded run
(`tests/run/test_eta.py`)."""
_RESIDUE = 0.25
"""Share of an item's mean cost that at least is left of one that is not done, on average over those
that are running: a forecast that was too low does not mean that nothing is left."""

_NUM_TERMS = NUM_COEFFICIENTS * (NUM_COEFFICIENTS + 2) + 1


def _row(size: Size) -> Floats:
    return np.array([size.num_items, size.num_chars, size.num_squares], dtype=np.float64)


def _terms(size: Size, cost: float) -> Floats:
    """Return a block's part of the fit's normal equations, and of the sums it is scaled to."""
    row = _row(size)
    weighted = row / size.num_items
    return np.concatenate([np.outer(weighted, row).ravel(), weighted * cost, row, [cost]])


def _predicted(terms: Floats, row: Floats) -> float:
    from scipy.optimize import nnls  # at the top it would delay every command

    k = NUM_COEFFICIENTS
    gram, right = terms[: k * k].reshape(k, k), terms[k * k : k * k + k]
    sums, cost = terms[-k - 1 : -1], terms[-1]
    # Least squares without the rows: a square root of their Gram matrix has the same solution.
    scale = 1 / np.maximum(sums, 1e-300)
    values, vectors = np.linalg.eigh(gram * np.outer(scale, scale))
    roots = np.sqrt(np.maximum(values, 0))
    kept = roots > 1e-7 * roots.max()
    root = roots[kept, None] * vectors.T[kept]
    fit = nnls(root, (vectors.T[kept] @ (right * scale)) / roots[kept])[0] * scale
    seen = float(fit @ sums)
    return float(fit @ row) * float(cost) / seen if seen else 0.0


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


def predict(seen: Sequence[tuple[Size, float]], remaining: Size, *, seed: int = 0) -> Interval:
    """Forecast the cost of unfinished items from finished blocks, with its interval.

    The interval is a bootstrap over blocks. It is widened to Student's t, for the coefficients that
    are fitted to few blocks, and for the chance variation of few remaining items.

    Args:
        seen: size and cost of each block, at least one.
        remaining: size of what is left.
        seed: seed of the bootstrap.
    """
    count, row = len(seen), _row(remaining)
    terms = np.stack([_terms(size, cost) for size, cost in seen])
    expected = _predicted(terms.sum(0), row)
    if count == 1:
        return Interval(expected=expected, low=0.0, high=float("inf"))
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    totals = [_predicted(drawn, row) for drawn in draws @ terms]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    wider = float(stdtrit(count - 1, 1 - tail) / ndtri(1 - tail))
    wider *= (count / max(1, count - NUM_COEFFICIENTS)) ** 0.5
    num_seen = sum(size.num_items for size, _ in seen)
    wider *= (1 + num_seen / max(1, remaining.num_items)) ** 0.5
    return Interval(
        expected=expected,
        low=max(0.0, expected - wider * (expected - float(low))),
        high=expected + wider * (float(high) - expected),
    )


def pilot_blocks(sizes: Sequence[Size], count: int, *, seed: int) -> frozenset[int]:
    """Choose a pilot stratified by length, so that long blocks are in it in proportion.

    Args:
        sizes: size of each block of the job.
        count: blocks of the pilot, at most all.
        seed: seed of the choice within each part.
    """
    order = sorted(range(len(sizes)), key=lambda number: sizes[number].num_chars)
    count, rng = min(count, len(order)), random.Random(seed)
    cuts = [len(order) * i // max(1, count) for i in range(count + 1)]
    return frozenset(order[rng.randrange(a, b)] for a, b in pairwise(cuts))


@dataclass(frozen=True, slots=True)
class Size:
    """Sums over items (problems of a labelling job, solutions of a scoring job)."""

    num_items: int = 0
    num_chars: int = 0
    """Characters of their texts."""
    num_squares: int = 0
    """Characters of each text squared: where every step of a solution is rolled out to its end,
    the cost rises with the square of its length."""

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Size:
        """Return the size of items.

        Args:
            lengths: characters of each item's text.
        """
        count = chars = squares = 0
        for length in lengths:
            count, chars, squares = count + 1, chars + length, squares + length * length
        return cls(count, chars, squares)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.num_items + other.num_items,
            self.num_chars + other.num_chars,
            self.num_squares + other.num_squares,
        )

    def __sub__(self, other: Size) -> Size:
        return Size(
            self.num_items - other.num_items,
            self.num_chars - other.num_chars,
            self.num_squares - other.num_squares,
        )
