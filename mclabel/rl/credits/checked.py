"""Where credits come in: what they are given, and what they give, is checked in this one place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from mclabel.boundary import Boundary, misfit, shown
from mclabel.components import derived_class
from mclabel.errors import DataError
from mclabel.records import Many
from mclabel.rl.credits.base import Credit, CreditSettings, Segment, StepEvidence


class CheckedCredit:
    """A credit whose segments are checked."""

    def __init__(self, settings: CreditSettings) -> None:
        """Make the credit that settings name.

        Raises:
            ConfigError: they name no credit.
            ComponentError: it cannot be made.
        """
        target = credit_class(settings)
        self.name, self.needs = settings.kind, target.needs
        self._around = Boundary.around("credits", target)
        self._credit = self._around.call("__init__", target, settings)

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """The credit of every solution of a group, in order; see `Credit.assign`.

        Raises:
            DataError: the group is empty, or what is known of a solution is none or not enough.
            ComponentError: the credit gives something else than segments that cover all steps.
        """
        check_group(group)
        for number, one in enumerate(group):
            for need in self.needs - {"first_error"}:  # of which None says that there is no error
                if getattr(one, need) is None:
                    raise DataError(
                        f"solution {number} of the group: has no {need}, which the credit "
                        f"{self.name} needs. Give them, or choose another credit"
                    )
        must = list[Many[Segment]]
        found = self._around.call("assign", self._credit.assign, group, must=must, rule=_uncovered)
        return [tuple(segments) for segments in found]

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
    if len(found) != len(group):
        return f"gave {shown(found)}, must give segments for each of {len(group)} solutions"
    for segments, one in zip(found, group, strict=True):
        ends = [part.end for part in segments]
        rising = all(a < b for a, b in pairwise([0, *ends]))
        if not rising or [0, *ends][-1] != one.num_steps:
            return (
                f"gave segments that end at {shown(ends)}, must give ends that rise from 1 or more "
                f"to the number of steps, which is {one.num_steps}"
            )
    return None


def check_group(group: Sequence[StepEvidence]) -> None:
    """See that what is known of a group's solutions can be.

    Raises:
        DataError: the group is empty, a list has another length than it must, or a number lies
            outside [0, 1].
    """
    if not group:
        raise DataError("the group holds no solution: give one or more")
    for number, one in enumerate(group):
        if fault := misfit(one, StepEvidence) or _contradiction(one):
            raise DataError(f"solution {number} of the group: {fault}")


def _contradiction(one: StepEvidence) -> str | None:
    """What does not go together in what is known of a solution."""
    for name, length in {"values": one.num_steps + 1, "scores": one.num_steps}.items():
        numbers = getattr(one, name)
        if numbers is not None and len(numbers) != length:
            return f"{len(numbers)} {name} for {one.num_steps} steps: must be {length}"
    if one.values is not None and one.num_steps and one.values[-1] != one.reward:
        return (
            f"values[{one.num_steps}]={one.values[-1]}: the value after the last step must be the "
            f"reward, which is {one.reward}"
        )
    if one.first_error is not None and not 0 <= one.first_error < one.num_steps:
        return (
            f"first_error={one.first_error}: must be the index of one of {one.num_steps} steps, "
            "or None"
        )
    return None


def credit_class(settings: CreditSettings) -> type[Credit]:
    """The class that settings name.

    Raises:
        ConfigError: it is no credit.
    """
    found: type[Credit] = derived_class(settings, Credit, key="credit.kind", page="docs/rl.md")
    return found
