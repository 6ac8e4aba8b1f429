"""What a credit is: from what is known of a group's solutions to one number a step.

Pure functions: no model, no engine, no clock, no randomness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import FiniteFloat

from mclabel.records import Chance, Index, Many
from mclabel.settings import ComponentSettings

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
    """Values under the current policy, `num_steps + 1` of them: of the bare problem, then after
    each step; the last is the reward. No value of a solution may rest on its own outcome but this
    last one. None where a value is not known."""
    scores: Many[Chance] | None = None
    """Of a PRM, in [0, 1], one a step."""
    first_error: int | None = None
    """Index of the first wrong step; None where no step is wrong."""

    def contradiction(self) -> str | None:
        """What does not go together; None if all does."""
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
    by_prover: ClassVar[bool] = False
    """Whether the values are to be those of another policy than the one in training."""
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
