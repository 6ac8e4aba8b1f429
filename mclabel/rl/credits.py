"""The protocol of credits, which turn the evidence of a group's solutions into one number per step.

A credit is a class in `credit_methods` and one line in `CREDITS`, or a class in your own package.
Credits are pure functions of outcomes, step values and step scores: they use no model, engine,
clock or randomness.
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
"""Class of each built-in credit, by its name in a configuration."""

ERROR_BELOW = 0.5
"""PRM score below which a step counts as wrong, since it is then more likely wrong than right."""

Need = Literal["values", "scores", "first_error"]
"""Evidence that a credit may need besides the outcome: step values under the current policy, step
scores of a PRM, or the index of the first error."""


@dataclass(frozen=True, kw_only=True)
class StepEvidence:
    """Evidence of one solution of a group. A group is the solutions of one problem."""

    num_steps: Index
    """Number of steps, 0 for a solution without text."""
    reward: Chance
    """Reward of the outcome, in [0, 1]. A solution with an unknown outcome belongs to no group."""
    values: Many[Chance | None] | None = None
    """Values under the current policy, `num_steps + 1` of them: the first is of the problem alone,
    the others follow each step, and the last is the reward. No other value of a solution may depend
    on its own outcome. None marks an unknown value."""
    scores: Many[Chance] | None = None
    """PRM score of each step, in [0, 1]."""
    first_error: int | None = None
    """Index of the first wrong step; None where no step is wrong."""

    def contradiction(self) -> str | None:
        """Return a contradiction between the fields; None if there is none."""
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
    """Index after the segment's last step. Segments are in order and cover all steps."""
    credit: FiniteFloat
    """Advantage of each token of the segment. Where a trainer sums rewards, it is the reward at the
    segment's last token."""


class CreditSettings(ComponentSettings):
    """Settings that all credits share."""

    component_kind: ClassVar[str] = "credits"


class Credit(ABC):
    """A method that assigns credit to the steps of a group's solutions. Derive from it to get the
    defaults.

    `Settings` is the class of its settings. A configuration names the credit by `kind` and holds
    its other settings beside it.
    """

    Settings: ClassVar[type[CreditSettings]] = CreditSettings
    needs: ClassVar[frozenset[Need]] = frozenset()
    """Evidence that the credit needs besides outcomes."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Make a credit.

        Args:
            settings: settings of the credit, an instance of `Settings`.
        """
        self.settings = settings

    @abstractmethod
    def assign(self, group: Sequence[StepEvidence]) -> list[Many[Segment]]:
        """Return the credit of every solution of a group, in order.

        Args:
            group: evidence of one or more solutions of one problem.

        Returns:
            The segments of each solution; a solution without steps has none.
        """
        ...


def mean(numbers: Sequence[float]) -> float:
    """Return the mean of one or more numbers."""
    return fsum(numbers) / len(numbers)


def centred_outcomes(group: Sequence[StepEvidence]) -> list[float]:
    """Return each solution's reward less the mean of the group."""
    mean_reward = mean([evidence.reward for evidence in group])
    return [evidence.reward - mean_reward for evidence in group]


def means_of_others(numbers: Sequence[float]) -> list[float | None]:
    """Return for each number the mean of the others; None where there is no other."""
    if len(numbers) < 2:
        return [None] * len(numbers)
    total = fsum(numbers)
    return [(total - number) / (len(numbers) - 1) for number in numbers]


def single_segment(num_steps: int, credit: float) -> tuple[Segment, ...]:
    """Return all steps as one segment; no segment where there are no steps."""
    return (Segment(end=num_steps, credit=credit),) if num_steps else ()


# The boundary of credits: their arguments and results are checked here and nowhere else.


class CheckedCredit:
    """A credit behind its boundary, which checks the evidence that it receives and the segments
    that it returns.
    """

    def __init__(self, settings: CreditSettings) -> None:
        """Make the credit that the settings name.

        Raises:
            ConfigError: the settings name no credit.
            ComponentError: the credit cannot be made.
        """
        rules = {"assign": _segments_fault}
        self._credit: Credit = guarded(Credit, settings, rules=rules, slow=False)
        self.name, self.needs = settings.kind, self._credit.needs

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return the credit of every solution of a group, in order; see `Credit.assign`.

        Raises:
            DataError: the group is empty, or the evidence of a solution contradicts itself or is
                incomplete.
            ComponentError: the credit does not return segments that cover all steps.
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
        for need in self.needs - {"first_error"}:  # where None means that no step is wrong
            if getattr(evidence, need) is None:
                return (
                    f"has no {need}, which the credit {self.name} needs. Give them, or choose "
                    "another credit"
                )
        return None

    def assign_known(
        self, group: Sequence[StepEvidence | None]
    ) -> list[tuple[Segment, ...] | None]:
        """Return the credit of the solutions with a known outcome, compared with each other, and
        None for the others. It raises the errors of `assign`.

        Args:
            group: evidence of each solution; None for one with an unknown outcome.
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
