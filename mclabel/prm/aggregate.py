"""From the scores of a solution's steps to one score of the solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

Aggregation = Literal["last", "min", "product", "mean"]

AGGREGATIONS: Mapping[Aggregation, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda scores: sum(scores) / len(scores),
}
"""`last` suits scorers trained on Monte Carlo labels, whose step values look ahead
(arXiv 2501.07301); `min` and `product` those trained on labels of correctness
(arXiv 2305.20050)."""


def aggregate(scores: Sequence[float], how: Aggregation) -> float:
    """One score of a solution.

    Args:
        scores: of its steps, in order, in [0, 1].
        how: which aggregation.

    Raises:
        ValueError: no scores.
    """
    if not scores:
        raise ValueError("no step scores: a solution without steps has no score")
    return AGGREGATIONS[how](scores)
