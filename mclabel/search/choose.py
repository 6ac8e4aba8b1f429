"""Which of the finished solutions to a problem is the result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from mclabel.search.settings import Choice


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A finished solution."""

    score: float
    """The scores of its steps joined to one number."""
    weight: float
    """How much it counts in a vote."""
    group: int | None
    """A number that equivalent answers share; None where it has no answer."""


def choose(finished: Sequence[Finished], how: Choice) -> int:
    """Index of the result.

    A solution without an answer is chosen where none has one. Where solutions are level, the one
    that counts more is chosen, then the first.

    Args:
        finished: at least one.
        how: see `Choice`. A vote by weights adds up the scores as they are, so it suits
            aggregations within [0, 1].
    """
    numbers = [i for i, one in enumerate(finished) if one.group is not None]
    numbers = numbers or list(range(len(finished)))
    if how != "best":
        votes: dict[int | None, float] = defaultdict(float)
        for i in numbers:
            one = finished[i]
            votes[one.group] += one.weight * (one.score if how == "weighted_vote" else 1.0)
        won = max(votes, key=lambda group: (votes[group], -(group or 0)))
        numbers = [i for i in numbers if finished[i].group == won]
    return max(numbers, key=lambda i: (finished[i].score, finished[i].weight, -i))
