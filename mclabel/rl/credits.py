"""What a credit is: from what is known of a group's solutions to one number a step.

A credit is a class in `credit_methods` and one line in `CREDITS`, or a class in a package of your
own. Credits are pure functions of outcomes, step values and step scores: no model, no engine, no
clock, no randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any, ClassVar, Literal

from pydantic import FiniteFloat

from mclabel.core.boundary import guarded, miscounted, misfit, shown
from mclabel.core.errors import DataError
from mclabel.core.records import Chance, Index, Many
from mclabel.core.settings import ComponentSettings

CREDITS: Mapping[str, str] = {
    "outcome": "mclabel.rl.credit_methods:OutcomeCredit",
    "first_error": "mclabel.rl.credit_methods:FirstErrorCredit",
    "mc": "mclabel.rl.credit_methods:ValueCredit",
    "prm_min": "mclabel.rl.credit_methods:MinCredit",
}
"""Name of each built-in credit in a configuration, and where its class stands."""

ERROR_BELOW = 0.5
"""PRM score below which a step is wrong: a wrong step is then the likelier case."""

Need = Literal["values", "scores", "first_error"]
"""What a credit may need beside the outcome: step values under the current policy, step scores of
a PRM, or the place of the first error."""


@dataclass(frozen=True, kw_only=True)
class StepEvidence:
    """What is known of one solution of a group. A group is the solutions of one problem."""

    num_steps: Index
    """0 for a solution without text."""
    reward: Chance
    """Of the outcome, in [0, 1]. A solution whose outcome is not known is in no group."""
    values: Many[Chance | None] | None = None
    """Values under the current policy, `num_steps + 1` of them: of the problem alone, then after
    each step; the last is the reward. No value of a solution may rest on its own outcome but this
    last one. None where a value is not known."""
    scores: Many[Chance] | None = None
    """Of a PRM, in [0, 1], one a step."""
    first_error: int | None = None
    """Index of the first wrong step; None where no step is wrong."""

    def contradiction(self) -> str | None:
        """Return what does not go together; None if all does."""
        for name, length in {"values": self.num_steps + 1, "scores": self.num_steps}.items():
            numbers = getattr(self, name)
            if numbers is not None and len(numbers) != length:
                return f"{len(numbers)} {name} for {self.num_steps} steps: must be {length}"
        if self.values is not None and self.num_steps and self.values[-1] != self.reward:
            return (
                f"values[{self.num_steps}]={self.values[-1]}: the value after the last step "
                f"must be the reward, which is {self.reward}"
            )
        if self.first_error is not None and not 0 <= self.first_error < self.num_steps:
            return (
                f"first_error={self.first_error}: must be the index of one of "
                f"{self.num_steps} steps, or None"
            )
        return None


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Consecutive steps with one credit: usually one step."""

    end: int
    """Index behind its last step. Segments are in order and cover all steps."""
    credit: FiniteFloat
    """The advantage of each of its tokens. Where a trainer sums rewards, it is the reward at the
    segment's last token."""


class CreditSettings(ComponentSettings):
    """Settings that every credit has."""

    component_kind: ClassVar[str] = "credits"


class Credit(ABC):
    """Assigns credit to the steps of a group's solutions. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the credit by `kind` holds
    the others beside it.
    """

    Settings: ClassVar[type[CreditSettings]] = CreditSettings
    needs: ClassVar[frozenset[Need]] = frozenset()
    """What it needs to know beside outcomes."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Make it.

        Args:
            settings: an instance of `Settings`.
        """
        self.settings = settings

    @abstractmethod
    def assign(self, group: Sequence[StepEvidence]) -> list[Many[Segment]]:
        """The credit of every solution of a group, in order.

        Args:
            group: solutions of one problem, one or more.

        Returns:
            For each solution its segments; none for a solution without steps.
        """
        ...


def mean(numbers: Sequence[float]) -> float:
    """The mean of one number or more."""
    return fsum(numbers) / len(numbers)


def centred_outcomes(group: Sequence[StepEvidence]) -> list[float]:
    """Each solution's reward less the mean of the group."""
    mean_reward = mean([evidence.reward for evidence in group])
    return [evidence.reward - mean_reward for evidence in group]


def means_of_others(numbers: Sequence[float]) -> list[float | None]:
    """For each number the mean of the others; None where there is no other."""
    if len(numbers) < 2:
        return [None] * len(numbers)
    total = fsum(numbers)
    return [(total - number) / (len(numbers) - 1) for number in numbers]


def single_segment(num_steps: int, credit: float) -> tuple[Segment, ...]:
    """All steps as one segment; none where there are no steps."""
    return (Segment(end=num_steps, credit=credit),) if num_steps else ()


# Where credits come in: what they are given, and what they give, is checked in this one place.


class CheckedCredit:
    """A credit behind its boundary, which is given nothing but what can be known of a group."""

    def __init__(self, settings: CreditSettings) -> None:
        """Make the credit that settings name.

        Raises:
            ConfigError: they name no credit.
            ComponentError: it cannot be made.
        """
        rules = {"assign": _segments_fault}
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
        for number, evidence in enumerate(group):
            if (
                fault := misfit(evidence, StepEvidence)
                or evidence.contradiction()
                or self._missing_evidence(evidence)
            ):
                raise DataError(f"solution {number} of the group: {fault}")
        return [tuple(segments) for segments in self._credit.assign(group)]

    def _missing_evidence(self, evidence: StepEvidence) -> str | None:
        for need in self.needs - {"first_error"}:  # of which None says that there is no error
            if getattr(evidence, need) is None:
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
        known_evidence = [evidence for evidence in group if evidence is not None]
        credits = iter(self.assign(known_evidence) if known_evidence else ())
        return [None if evidence is None else next(credits) for evidence in group]


def _segments_fault(
    segments_of_all: Sequence[Sequence[Segment]], group: Sequence[StepEvidence]
) -> str | None:
    if fault := miscounted("lists of segments for", segments_of_all, "solution", len(group)):
        return fault
    for segments, evidence in zip(segments_of_all, group, strict=True):
        ends = [part.end for part in segments]
        rising = all(a < b for a, b in pairwise([0, *ends]))
        if not rising or [0, *ends][-1] != evidence.num_steps:
            return (
                f"gave segments that end at {shown(ends)}, must give ends that rise from 1 or more "
                f"to the number of steps, which is {evidence.num_steps}"
            )
    return None
