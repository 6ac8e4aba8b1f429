"""What an estimator is: a pure state machine that decides what to roll out.

One estimator serves one problem. It is told the problem's solutions as paths through a set of
prefixes, says which rollouts it wants next, is told each outcome in whatever order they
arrive, and in the end gives a label for every step. It knows no engine, no thread, no clock
and no randomness, so the same outcomes always give the same labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.records import Counts, Outcome, StepRule


@dataclass(frozen=True, kw_only=True)
class SolutionPath:
    """A solution as an estimator sees it.

    `prefixes[t]` is the index of the prefix that ends with step t, for every step but the
    last: after the last step nothing is left to roll out, and its label is the outcome.
    Solutions that begin alike share prefix indices.
    """

    prefixes: tuple[int, ...]
    outcome: Outcome

    @property
    def num_steps(self) -> int:
        return len(self.prefixes) + 1


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An estimator's word on one solution."""

    hard: tuple[bool | None, ...]
    """One per step: the policy still recovers from it, or None for no verdict."""
    rules: tuple[StepRule, ...]
    """One per step: how the label came about."""
    first_error: int | None


ROOT = 0
"""Index of the bare problem among the prefixes."""


class Estimator(Protocol):
    """Decides which prefix of a problem to roll out next, and when to stop."""

    def wanted(self) -> Sequence[int]:
        """Prefix indices to start one more rollout from, each as often as it is named.

        Each call returns only what was not asked for before. Nothing wanted while outcomes
        are still due means: wait for them. Nothing wanted and nothing due: done.
        """
        ...

    def tell(self, prefix: int, outcome: Outcome) -> None:
        """Take the outcome of one rollout that was asked for."""
        ...

    def judge(self, counts: Sequence[Counts]) -> list[Judgement]:
        """One judgement per solution, in order, once done.

        Args:
            counts: outcomes so far, one per prefix index.
        """
        ...


def outcome_label(outcome: Outcome) -> bool | None:
    """The hard label of a solution's last step."""
    return {Outcome.RIGHT: True, Outcome.WRONG: False}.get(outcome)
