"""Credit by the outcome, and by the outcome and the place of the first error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from mclabel.rl.credits.base import (
    Credit,
    CreditSettings,
    Need,
    Segment,
    StepEvidence,
    centred_outcomes,
    means_of_others,
    whole,
)


class OutcomeCredit(Credit):
    """GRPO without a deviation (arXiv 2503.20783): the reward less the mean of the group.

    All steps of a solution are one segment.
    """

    class Settings(CreditSettings):
        """Compares the outcomes of a group."""

        leave_one_out: bool = False
        """Whether a reward is compared with the mean of the others (RLOO, arXiv 2402.14740), not of
        the whole group. A group of one has credit 0."""

    settings: Settings

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """One segment for each solution; see `Credit.assign`."""
        credits = centred_outcomes(group)
        if self.settings.leave_one_out:
            others = means_of_others([one.reward for one in group])
            credits = [
                0.0 if other is None else one.reward - other
                for one, other in zip(group, others, strict=True)
            ]
        return [whole(one.num_steps, credit) for one, credit in zip(group, credits, strict=True)]


class FirstErrorCredit(Credit):
    """The outcome gives the sign, the first error the place (VPPO, arXiv 2601.18984).

    A is the reward less the mean of the group. Where A is negative and a first error is named, the
    steps before it have `before` times |A|, and it and those after it have A. Else all steps
    have A: a solution that is better than the group is not blamed for an error that was found in
    it, and one that is worse is blamed as a whole where no error is named.
    """

    class Settings(CreditSettings):
        """Blames the steps from the first error on."""

        before: float = Field(0.0, ge=0, le=1)
        """Credit of the steps before the first error, as a fraction of the size of the negative
        credit from it on."""

    settings: Settings
    needs: ClassVar[frozenset[Need]] = frozenset({"first_error"})

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """One or two segments for each solution; see `Credit.assign`."""
        pairs = zip(group, centred_outcomes(group), strict=True)
        return [self._segments(one, credit) for one, credit in pairs]

    def _segments(self, one: StepEvidence, credit: float) -> tuple[Segment, ...]:
        if credit >= 0 or not one.first_error:  # none, or nothing is before it
            return whole(one.num_steps, credit)
        sound = Segment(end=one.first_error, credit=self.settings.before * -credit)
        return (sound, Segment(end=one.num_steps, credit=credit))
