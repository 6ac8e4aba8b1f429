"""Credit by the outcome, by the scores of a PRM, and by step values.

A policy learns to exploit a PRM. Credit by scores therefore bounds the credit of each step, however
many steps there are.

Credit by step values measures how much a step changes the chance that the solution ends right. The
caller computes the values: by rollouts from every step, by the posterior of fewer rollouts, or from
states that the solutions of a group share. A step without a value is joined with the steps after it
into one segment, up to the next value (SPO, arXiv 2505.23564). The value after the last step is the
reward, which always exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits import (
    Credit,
    CreditSettings,
    Need,
    Segment,
    StepEvidence,
    centred_outcomes,
    means_of_others,
    single_segment,
)


class OutcomeCredit(Credit):
    """GRPO without a deviation (arXiv 2503.20783): the reward less the mean of the group.

    All steps of a solution are one segment.
    """

    class Settings(CreditSettings):
        """Settings of the credit by the outcome."""

        leave_one_out: bool = False
        """True to compare a reward with the mean of the others (RLOO, arXiv 2402.14740), not of
        the whole group."""

    settings: Settings

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return one segment for each solution; see `Credit.assign`."""
        credits = centred_outcomes(group)
        if self.settings.leave_one_out:
            others = means_of_others([evidence.reward for evidence in group])
            credits = [
                0.0 if other is None else evidence.reward - other
                for evidence, other in zip(group, others, strict=True)
            ]
        return [
            single_segment(evidence.num_steps, credit)
            for evidence, credit in zip(group, credits, strict=True)
        ]


class FirstErrorCredit(Credit):
    """Credit whose sign comes from the outcome, and whose steps from the first error (VPPO, arXiv
    2601.18984).

    A is the reward less the mean of the group. If A is negative and there is a first error, the
    steps before it have 0, and it and the steps after it have A. Otherwise all steps have A: a
    solution that is better than the group is not blamed for its error, and a worse one without a
    first error is blamed as a whole.
    """

    class Settings(CreditSettings):
        """Settings of the credit by the first error."""

    needs: ClassVar[frozenset[Need]] = frozenset({"first_error"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return one or two segments for each solution; see `Credit.assign`."""
        pairs = zip(group, centred_outcomes(group), strict=True)
        return [_segments_around_error(evidence, credit) for evidence, credit in pairs]


def _segments_around_error(evidence: StepEvidence, credit: float) -> tuple[Segment, ...]:
    if credit >= 0 or not evidence.first_error:  # no first error, or no step before it
        return single_segment(evidence.num_steps, credit)
    sound = Segment(end=evidence.first_error, credit=0.0)
    return (sound, Segment(end=evidence.num_steps, credit=credit))


class MinCredit(Credit):
    """The return of a step is the lowest score from it on (PURE, arXiv 2504.15275).

    Its credit is this return minus the mean over the group's other solutions of their lowest score,
    plus the outcome's credit. The scores of the only solution of a group count 0, because there is
    no other to compare them with.
    """

    class Settings(CreditSettings):
        """Settings of the credit by the lowest score."""

        process_weight: float = Field(1.0, ge=0, le=100)
        """Weight of the PRM's scores, against 1 for the outcome."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = frozenset({"scores"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return a segment for each step; see `Credit.assign`."""
        scores_of_all = [evidence.scores or () for evidence in group]
        means = means_of_others([min(scores, default=0.0) for scores in scores_of_all])
        return [
            tuple(
                Segment(end=end, credit=self._process_credit(low, mean_of_others) + outcome)
                for end, low in enumerate(_lowest_from_each(scores), 1)
            )
            for scores, mean_of_others, outcome in zip(
                scores_of_all, means, centred_outcomes(group), strict=True
            )
        ]

    def _process_credit(self, low: float, mean_of_others: float | None) -> float:
        return (
            0.0 if mean_of_others is None else self.settings.process_weight * (low - mean_of_others)
        )


def _lowest_from_each(scores: Sequence[float]) -> list[float]:
    """Return for each step the lowest score from it on."""
    return list(accumulate(reversed(scores), min))[::-1]


class ValueCredit(Credit):
    """The value after a step less the value before it (VinePPO, arXiv 2410.01679).

    The credits of a solution's segments add up to its reward less the value of the problem alone.
    Where that value is unknown, the mean reward of the group's other solutions replaces it. Without
    other solutions, the first segment has 0.
    """

    needs: ClassVar[frozenset[Need]] = frozenset({"values"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return a segment up to each known value; see `Credit.assign`."""
        means = means_of_others([evidence.reward for evidence in group])
        return [
            _value_changes(evidence, mean_of_others)
            for evidence, mean_of_others in zip(group, means, strict=True)
        ]


def _value_changes(evidence: StepEvidence, mean_of_others: float | None) -> tuple[Segment, ...]:
    """Return the changes from each known value to the next.

    Args:
        evidence: evidence of a solution with step values.
        mean_of_others: mean reward of the group's other solutions, in [0, 1]. It replaces the value
            of the problem alone where that is unknown; if it is None too, the first segment has 0.
    """
    assert evidence.values is not None
    before = evidence.values[0] if evidence.values[0] is not None else mean_of_others
    segments: list[Segment] = []
    for end, after in enumerate(evidence.values[1:], 1):
        if after is not None:
            segments.append(Segment(end=end, credit=0.0 if before is None else after - before))
            before = after
    return tuple(segments)
