"""The interface of credits. A credit is a method that computes one advantage per step (the step's
credit) from the rewards and step scores of a group of solutions.

A built-in credit is a class in `credit_methods` and a line in `CREDITS`. Other packages can define
credits, too. The result must depend on the rewards and step scores alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import Any, ClassVar, Literal

from pydantic import FiniteFloat

from mclabel.core.boundary import check_item_count, describe_value, make_guarded
from mclabel.core.records import Index, Probability, TupleOf
from mclabel.core.settings import ComponentSettings

CREDITS: Mapping[str, str] = {
    "outcome": "mclabel.rl.credit_methods:OutcomeCredit",
    "first_error": "mclabel.rl.credit_methods:FirstErrorCredit",
    "prm_min": "mclabel.rl.credit_methods:MinCredit",
}
"""Maps the name of each built-in credit in a configuration to its class, as `module:Class`."""

ERROR_BELOW = 0.5
"""PRM score below which a step counts as wrong."""

Need = Literal["scores", "first_error"]
"""Input that a credit may need besides the reward: step scores of a PRM, or the index of the first
error."""


@dataclass(frozen=True, kw_only=True)
class StepEvidence:
    """Inputs of a credit about one solution of a group: its reward, step scores and first error.

    A group consists of solutions of one problem.
    """

    num_steps: Index
    """Number of steps; 0 for a solution without text."""
    reward: Probability
    """Reward of the outcome, in [0, 1]. Solutions with unknown outcomes are left out of groups."""
    scores: TupleOf[Probability] | None = None
    """PRM score of each step, in [0, 1]; None without a PRM."""
    first_error: int | None = None
    """Index of the first wrong step, from 0; None if no step is wrong."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One or more consecutive steps with the same credit."""

    end: int
    """Index after the segment's last step. The segments of a solution are in order and cover all
    its steps."""
    credit: FiniteFloat
    """Advantage of each token of the segment. For a trainer that sums rewards, it is the reward at
    the segment's last token."""


class CreditSettings(ComponentSettings):
    """Base class for the settings of a credit."""

    component_kind: ClassVar[str] = "credits"


class Credit(ABC):
    """Base class of credits: methods that assign an advantage to each step of a solution.

    `Settings` is the class of the credit's settings. A configuration selects the credit by `kind`
    and may set its other settings.
    """

    Settings: ClassVar[type[CreditSettings]] = CreditSettings
    needs: ClassVar[frozenset[Need]] = frozenset()
    """Inputs that the credit needs besides rewards."""
    settings: Any

    def __init__(self, settings: Any) -> None:
        """Create a credit.

        Args:
            settings: settings of the credit, an instance of `Settings`.
        """
        self.settings = settings

    @abstractmethod
    def assign(self, group: Sequence[StepEvidence]) -> list[TupleOf[Segment]]:
        """Return the advantages of the steps of every solution of a group, in order.

        Args:
            group: rewards, step scores and first errors of one or more solutions of one problem.

        Returns:
            The segments of each solution. A solution without steps has no segments.
        """
        ...


def compute_mean(numbers: Sequence[float]) -> float:
    """Return the mean of one or more numbers."""
    return fsum(numbers) / len(numbers)


def center_rewards(group: Sequence[StepEvidence]) -> list[float]:
    """Return each solution's reward minus the mean reward of the group."""
    mean_reward = compute_mean([evidence.reward for evidence in group])
    return [evidence.reward - mean_reward for evidence in group]


def compute_means_of_others(numbers: Sequence[float]) -> list[float | None]:
    """Return for each number the mean of all other numbers; None if there is only one number."""
    if len(numbers) < 2:
        return [None] * len(numbers)
    total = fsum(numbers)
    return [(total - number) / (len(numbers) - 1) for number in numbers]


def make_single_segment(num_steps: int, credit: float) -> tuple[Segment, ...]:
    """Return one segment of all steps, or no segment if there are no steps."""
    return (Segment(end=num_steps, credit=credit),) if num_steps else ()


# Checks of the results of credits. They are checked only here.


class CheckedCredit:
    """Wrapper of a credit that checks its segments at each call."""

    def __init__(self, settings: CreditSettings) -> None:
        """Create the credit that the settings name.

        Raises:
            ConfigError: the credit of the settings does not exist.
            ComponentError: the credit cannot be created.
        """
        self._credit: Credit = make_guarded(
            Credit, settings, rules={"assign": _find_segments_fault}, slow=False
        )

    def assign(self, group: Sequence[StepEvidence]) -> list[tuple[Segment, ...]]:
        """Return the segments of every solution of a group, in order.

        Raises:
            ComponentError: the credit does not return segments that cover all steps.
        """
        return [tuple(segments) for segments in self._credit.assign(group)]

    def assign_known(
        self, group: Sequence[StepEvidence | None]
    ) -> list[tuple[Segment, ...] | None]:
        """Return the segments of every solution with a known reward, and None for other solutions.

        Only solutions with known rewards are compared. The method raises the errors of `assign`.

        Args:
            group: inputs of each solution; None for a solution whose reward is unknown.
        """
        known_evidence = [evidence for evidence in group if evidence is not None]
        credits = iter(self.assign(known_evidence) if known_evidence else ())
        return [None if evidence is None else next(credits) for evidence in group]


def _find_segments_fault(
    segments_of_all: Sequence[Sequence[Segment]], group: Sequence[StepEvidence]
) -> str | None:
    """Return the fault if segments do not cover all steps of each solution; else None."""
    if fault := check_item_count("lists of segments for", segments_of_all, "solution", len(group)):
        return fault
    for segments, evidence in zip(segments_of_all, group, strict=True):
        ends = [segment.end for segment in segments]
        is_increasing = all(a < b for a, b in pairwise([0, *ends]))
        if not is_increasing or [0, *ends][-1] != evidence.num_steps:
            return (
                f"gave segments that end at {describe_value(ends)}, must give increasing ends >= "
                f"1, of which the last is the number of steps, {evidence.num_steps}"
            )
    return None
