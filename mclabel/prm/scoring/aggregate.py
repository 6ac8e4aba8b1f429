"""The scores of a solution's steps, and from them to one score of the solution, or to none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

from mclabel.core.errors import DataError
from mclabel.core.settings import OneOf

_LEAST = 1e-9
"""Scores are kept this far from 0 and 1 where their log-odds are taken."""


def log_odds_sum(scores: Sequence[float]) -> float:
    """Sum of log(p / (1 - p)) over the steps: any number, higher is better."""
    bounded = [min(max(score, _LEAST), 1 - _LEAST) for score in scores]
    return sum(math.log(score / (1 - score)) for score in bounded)


AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda scores: sum(scores) / len(scores),
    "max": max,
    "log_odds": log_odds_sum,
}
"""`last` suits scorers trained on Monte Carlo labels, whose step values look ahead
(arXiv 2501.07301); `min` and `product` those trained on labels of correctness
(arXiv 2305.20050); `max` noisy labels (arXiv 2402.02658)."""

Aggregation = Annotated[str, OneOf(tuple(AGGREGATIONS))]


def aggregate(scores: Sequence[float], how: Aggregation) -> float:
    """One score of a solution.

    Args:
        scores: scores of its steps, in order, in [0, 1].
        how: name of the aggregation.

    Raises:
        ValueError: no scores.
    """
    if not scores:
        raise ValueError("no step scores: a solution without steps has no score")
    return AGGREGATIONS[how](scores)


class UnscoredError(DataError):
    """A solution was read, but nothing that the scorer sampled on it gives a verdict.

    `score_encoded` gives it in place of the solution's scores; who needs them raises it.
    """

    def __init__(self, reason: str, *, num_tokens: int = 0) -> None:
        """Note why there is no score.

        Args:
            reason: a sentence without the name of the solution.
            num_tokens: that were sampled in vain.
        """
        super().__init__(reason)
        self.num_tokens = num_tokens


class StepEstimates(NamedTuple):
    """Scores of the steps of one solution."""

    scores: list[float]
    """One per step: the probability that it is sound."""
    num_tokens: int = 0
    """Tokens that were sampled for them, by a scorer that samples."""


def check_scores(
    model: str, scores: Sequence[Sequence[float] | UnscoredError], places: Sequence[str]
) -> None:
    """Refuse scores that are no numbers: they would neither be the best nor the worst.

    Args:
        model: its name, for the message.
        scores: scores of each solution; one without scores is left to the caller.
        places: names of the solutions.

    Raises:
        DataError: names the first solution with such a score.
    """
    for place, row in zip(places, scores, strict=True):
        for score in () if isinstance(row, UnscoredError) else row:
            if not math.isfinite(score):
                raise DataError(
                    f"{place}: {model} gives it the score {score}, which must be a finite number. "
                    "The model's weights are damaged, or overflow on this text. Train or "
                    "download it again"
                )
