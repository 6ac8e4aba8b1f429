"""Where credits come in: what they are given, and what they give, is checked in this one place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mclabel.boundary import guarded, miscounted, misfit, shown
from mclabel.errors import DataError
from mclabel.rl.credits.base import Credit, CreditSettings, Segment, StepEvidence


class CheckedCredit:
    """A credit behind its boundary, which is given nothing but what can be known of a group."""

    def __init__(self, settings: CreditSettings) -> None:
        """Make the credit that settings name.

        Raises:
            ConfigError: they name no credit.
            ComponentError: it cannot be made.
        """
        rules = {"assign": _uncovered}
        self._credit: Credit = guarded(Credit, settings, rules=rules, slow=False)
        self.name, self.needs = settings.kind, self._credit.needs

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """The credit of every solution of a group, in order; see `Credit.assign`.

        Raises:
            DataError: the group is empty, or what is known of a solution cannot be, or is not
                enough.
            ComponentError: the credit gives something else than segments that cover all steps.
        """
        if not group:
            raise DataError("the group holds no solution: give one or more")
        for number, one in enumerate(group):
            if fault := misfit(one, StepEvidence) or one.contradiction() or self._lack(one):
                raise DataError(f"solution {number} of the group: {fault}")
        return [tuple(segments) for segments in self._credit.assign(group)]

    def _lack(self, one: StepEvidence) -> str | None:
        for need in self.needs - {"first_error"}:  # of which None says that there is no error
            if getattr(one, need) is None:
                return (
                    f"has no {need}, which the credit {self.name} needs. Give them, or choose "
                    "another credit"
                )
        return None

    def assign_known(
        self, group: Sequence[StepEvidence | None]
    ) -> list[tuple[Segment, ...] | None]:
        """The credit of those solutions of a group whose outcome is known, compared with each
        other; None for the others, and raises as `assign`.

        Args:
            group: with None for a solution whose outcome is not known.
        """
        known = [one for one in group if one is not None]
        credits = iter(self.assign(known) if known else ())
        return [None if one is None else next(credits) for one in group]


def _uncovered(found: Sequence[Sequence[Segment]], group: Sequence[StepEvidence]) -> str | None:
    if fault := miscounted("lists of segments for", found, "solution", len(group)):
        return fault
    for segments, one in zip(found, group, strict=True):
        ends = [part.end for part in segments]
        rising = all(a < b for a, b in pairwise([0, *ends]))
        if not rising or [0, *ends][-1] != one.num_steps:
            return (
                f"gave segments that end at {shown(ends)}, must give ends that rise from 1 or more "
                f"to the number of steps, which is {one.num_steps}"
            )
    return None
