"""Forecasts the cost of a job from the sizes of its items and the costs of finished blocks.

The cost of a block is modelled as a sum of three terms, proportional to the number of items, to
their characters, and to their squared lengths. The coefficients are fitted by weighted
non-negative least squares, and scaled to the observed total cost (a ratio estimator, Cochran 1977,
chapter 6).
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
"""Number of bootstrap samples from which an interval is computed."""
LEVEL = 0.95
"""Probability with which an interval covers the true cost."""
NUM_COEFFICIENTS = 3


class CostModel:
    """Predicts a block's cost from its size. Its memory does not grow with the number of blocks."""

    def __init__(self) -> None:
        self._terms = np.zeros(_NUM_TERMS)

    def add(self, size: Size, cost: float) -> None:
        """Add a finished block to the fit. The variance of its cost is assumed to be proportional
        to its number of items.
        """
        self._terms += _make_normal_equation_terms(size, cost)

    def predict(self, size: Size) -> float | None:
        """Return the expected cost of items of a given size; None before any block was added."""
        return _predict_cost(self._terms, _to_size_vector(size)) if self._terms.any() else None


class RemainderForecast:
    """Forecasts the remaining tokens of a running job."""

    def __init__(self, *, num_items: int, size: Size | None = None) -> None:
        """Start without finished items.

        Args:
            num_items: number of items that this run has to process.
            size: size of all items of the job. The items of this run are assumed to be as large on
                average. None if unknown.
        """
        self._num_items, self._size = num_items, size
        self._committed, self._model = Size(), CostModel()
        self._committed_tokens = 0

    def add_committed_block(self, size: Size, num_tokens: int) -> None:
        """Record a committed block: its size, and its cost in tokens."""
        self._committed += size
        self._committed_tokens += num_tokens
        self._model.add(size, num_tokens)

    def forecast_remaining_tokens(
        self, *, num_done: int, num_open: int, done_tokens: int, open_tokens: int
    ) -> float | None:
        """Return the expected number of remaining tokens; None before the first item is finished.

        Of items that start together, the cheap ones finish first, so the mean cost of the finished
        items is too low. All tokens so far divided by the number of finished items is right if
        costs are exponentially distributed, and too high if they are similar. As long as less than
        half of the finished items are committed, the expected cost of an item that has not started
        is the geometric mean of these two. Later it comes from the fit to the committed blocks. Of
        a started item, a share of the mean cost is expected to remain, which falls as more of the
        started items finish, but at least the difference between the mean cost and the item's cost
        so far.

        Args:
            num_done: number of items that this run has finished, including items of running blocks.
            num_open: number of items that have started but are not finished.
            done_tokens: cost of these finished items in tokens.
            open_tokens: cost so far, in tokens, of the blocks that are not committed.
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
"""Exponent for the decrease of a started item's expected remaining cost: the share of started items
that are not finished is raised to it. 0 would be right for exponentially distributed costs. 0.25
was chosen on one recorded run (`tests/run/test_eta.py`)."""
_RESIDUE = 0.25
"""Minimum share of the mean cost that is expected to remain for a started item. It keeps the
forecast above zero if items cost more than expected."""

_NUM_TERMS = NUM_COEFFICIENTS * (NUM_COEFFICIENTS + 2) + 1


def _to_size_vector(size: Size) -> Floats:
    return np.array([size.num_items, size.num_chars, size.sum_squared_chars], dtype=np.float64)


def _make_normal_equation_terms(block_size: Size, block_cost: float) -> Floats:
    """Return a block's summands of the fit's normal equations and of the totals for scaling."""
    row = _to_size_vector(block_size)
    weighted = row / block_size.num_items
    return np.concatenate(
        [np.outer(weighted, row).ravel(), weighted * block_cost, row, [block_cost]]
    )


def _predict_cost(terms: Floats, row: Floats) -> float:
    from scipy.optimize import nnls  # at the top it would delay every command

    k = NUM_COEFFICIENTS
    gram, right = terms[: k * k].reshape(k, k), terms[k * k : k * k + k]
    sums, cost = terms[-k - 1 : -1], terms[-1]
    # The rows of the blocks are not stored. A square root of their Gram matrix gives the same
    # least-squares solution.
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
    """An expected amount, and the ends of its 95% interval."""

    expected: float
    low: float
    high: float

    def scale_and_shift(self, factor: float, constant: float = 0.0) -> Interval:
        """Return the interval multiplied by `factor`, plus `constant`."""
        ends = (self.expected, self.low, self.high)
        expected, low, high = (factor * end + constant for end in ends)
        return Interval(expected=expected, low=low, high=high)


def forecast_cost(
    finished_blocks: Sequence[tuple[Size, float]], remaining: Size, *, seed: int = 0
) -> Interval:
    """Forecast the cost of unfinished items, with a 95% interval, from finished blocks.

    The interval is a bootstrap over blocks. It is widened by the ratio of Student's t to the normal
    quantile, for the number of fitted coefficients, and for the random variation of few remaining
    items.

    Args:
        finished_blocks: size and cost of each finished block, at least one.
        remaining: size of the unfinished items.
        seed: random seed of the bootstrap.
    """
    count, row = len(finished_blocks), _to_size_vector(remaining)
    terms = np.stack([_make_normal_equation_terms(size, cost) for size, cost in finished_blocks])
    expected = _predict_cost(terms.sum(0), row)
    if count == 1:
        return Interval(expected=expected, low=0.0, high=float("inf"))
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(count, np.full(count, 1 / count), size=RESAMPLES)
    totals = [_predict_cost(drawn, row) for drawn in draws @ terms]
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(totals, [tail, 1 - tail])
    wider = float(stdtrit(count - 1, 1 - tail) / ndtri(1 - tail))
    wider *= (count / max(1, count - NUM_COEFFICIENTS)) ** 0.5
    num_seen = sum(size.num_items for size, _ in finished_blocks)
    wider *= (1 + num_seen / max(1, remaining.num_items)) ** 0.5
    return Interval(
        expected=expected,
        low=max(0.0, expected - wider * (expected - float(low))),
        high=expected + wider * (float(high) - expected),
    )


def choose_pilot_blocks(sizes: Sequence[Size], count: int, *, seed: int) -> frozenset[int]:
    """Choose the blocks of a pilot, stratified by length, so that all lengths are represented.

    Args:
        sizes: size of each block of the job.
        count: number of blocks to choose; at most all blocks are chosen.
        seed: random seed of the choice within each stratum.

    Returns:
        Indices into `sizes`.
    """
    order = sorted(range(len(sizes)), key=lambda number: sizes[number].num_chars)
    count, rng = min(count, len(order)), random.Random(seed)
    cuts = [len(order) * i // max(1, count) for i in range(count + 1)]
    return frozenset(order[rng.randrange(a, b)] for a, b in pairwise(cuts))


@dataclass(frozen=True, slots=True)
class Size:
    """Size of a set of items (problems of a labelling job, solutions of a scoring job)."""

    num_items: int = 0
    num_chars: int = 0
    """Number of characters of all items' texts."""
    sum_squared_chars: int = 0
    """Sum of the squared text lengths in characters. If every step of a solution is rolled out to
    the end, the cost grows with the square of the length."""

    @classmethod
    def from_lengths(cls, lengths: Iterable[int]) -> Size:
        """Return the size of a set of items.

        Args:
            lengths: number of characters of each item's text.
        """
        count = chars = squares = 0
        for length in lengths:
            count, chars, squares = count + 1, chars + length, squares + length * length
        return cls(count, chars, squares)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.num_items + other.num_items,
            self.num_chars + other.num_chars,
            self.sum_squared_chars + other.sum_squared_chars,
        )

    def __sub__(self, other: Size) -> Size:
        return Size(
            self.num_items - other.num_items,
            self.num_chars - other.num_chars,
            self.sum_squared_chars - other.sum_squared_chars,
        )
