"""What credits share: means over a group, and segments of single steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum

from mclabel.rl.credits.base import Segment, StepEvidence


def mean(numbers: Sequence[float]) -> float:
    """The mean of one number or more."""
    return fsum(numbers) / len(numbers)


def centred_outcomes(group: Sequence[StepEvidence]) -> list[float]:
    """Each solution's reward less the mean of the group."""
    middle = mean([one.reward for one in group])
    return [one.reward - middle for one in group]


def means_of_others(numbers: Sequence[float]) -> list[float | None]:
    """For each number the mean of the others; None where there is no other."""
    if len(numbers) < 2:
        return [None] * len(numbers)
    total = fsum(numbers)
    return [(total - one) / (len(numbers) - 1) for one in numbers]


def whole(num_steps: int, credit: float) -> tuple[Segment, ...]:
    """All steps as one segment; none where there are no steps."""
    return (Segment(end=num_steps, credit=credit),) if num_steps else ()


def each_step(credits: Iterable[float]) -> tuple[Segment, ...]:
    """Each step as a segment of its own."""
    return tuple(Segment(end=end, credit=credit) for end, credit in enumerate(credits, 1))


def scores_of(one: StepEvidence) -> tuple[float, ...]:
    """The scores of a solution's steps, where a credit needs them."""
    assert one.scores is not None
    return one.scores
