"""Aggregation of the step scores of a solution to one score of the solution."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

from mclabel.core.errors import DataError
from mclabel.core.settings import OneOf

_LEAST = 1e-9
"""Minimum distance of a score from 0 and 1 before its log-odds are computed."""


def sum_log_odds(scores: Sequence[float]) -> float:
    """Return the sum of log(p / (1 - p)) over the scores p of the steps; higher is better."""
    bounded = [min(max(score, _LEAST), 1 - _LEAST) for score in scores]
    return sum(math.log(score / (1 - score)) for score in bounded)


AGGREGATIONS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "last": lambda scores: scores[-1],
    "min": min,
    "product": math.prod,
    "mean": lambda scores: sum(scores) / len(scores),
    "max": max,
    "log_odds": sum_log_odds,
}
"""Aggregations of step scores by name. `last` suits scorers trained on Monte Carlo labels, which
estimate the final outcome (arXiv 2501.07301). `min` and `product` suit scorers trained on labels of
correctness (arXiv 2305.20050). `max` suits noisy labels (arXiv 2402.02658)."""

Aggregation = Annotated[str, OneOf(tuple(AGGREGATIONS))]
"""Name of an aggregation, a key of `AGGREGATIONS`."""


def aggregate(scores: Sequence[float], aggregation: Aggregation) -> float:
    """Return the score of a solution from the scores of its steps.

    Args:
        scores: scores of the steps in order, in [0, 1].
        aggregation: name of the aggregation.

    Raises:
        ValueError: `scores` is empty.
    """
    if not scores:
        raise ValueError("a solution without steps has no score")
    return AGGREGATIONS[aggregation](scores)


class UnscoredError(DataError):
    """The error for a solution without scores, since a generative PRM gave no verdict on it.

    `score_encoded` returns this error in place of the solution's scores. A caller that needs the
    scores raises it.
    """

    def __init__(self, reason: str, *, num_tokens: int = 0) -> None:
        """Create the error.

        Args:
            reason: a sentence that says why there is no score, without the name of the solution.
            num_tokens: number of tokens that were sampled without a result.
        """
        super().__init__(reason)
        self.num_tokens = num_tokens


class StepEstimates(NamedTuple):
    """Scores of the steps of one solution."""

    scores: list[float]
    """Probability that each step is sound."""
    num_tokens: int = 0
    """Number of tokens that were sampled to compute the scores; 0 if the scorer does not sample."""


def check_scores(
    model: str, scores: Sequence[Sequence[float] | UnscoredError], names_in_errors: Sequence[str]
) -> None:
    """Refuse scores that are NaN or infinite, because they cannot be ranked.

    Args:
        model: name of the model, for the error message.
        scores: step scores of each solution. Solutions without scores are ignored.
        names_in_errors: descriptions of the solutions for the error message.

    Raises:
        DataError: a score is not finite. The message names the first such solution.
    """
    for place, row in zip(names_in_errors, scores, strict=True):
        for score in () if isinstance(row, UnscoredError) else row:
            if not math.isfinite(score):
                raise DataError(
                    f"{place}: {model} gives it the score {score}, which must be a finite number. "
                    "The model's weights are damaged, or overflow on this text. Train or "
                    "download it again"
                )
