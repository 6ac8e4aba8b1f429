"""What an estimator is: a pure state machine that decides what to roll out.

One estimator serves one problem. It is told the problem's solutions as paths through a set of
prefixes, says which rollouts it wants next, is told each outcome in whatever order they
arrive, and in the end gives a label for every step. It knows no engine, no thread, no clock
and no randomness, so the same outcomes always give the same labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from mclabel.records import Counts, Outcome, StepRule
from mclabel.stats.values import NOTHING, StepEstimate


@dataclass(frozen=True, kw_only=True)
class SolutionPath:
    """A solution as an estimator sees it.

    `prefixes[t]` is the index of the prefix that ends with step t, for every step but the
    last: after the last step nothing is left to roll out, and its label is the outcome.
    Solutions that begin alike share prefix indices.
    """

    prefixes: tuple[int, ...]
    outcome: Outcome
    sampled: bool = True
    """By the policy under the rollouts' sampling parameters, and not chosen by its outcome: then
    the outcome is a free rollout of each of its prefixes."""
    step_tokens: tuple[int, ...] = ()
    """Tokens of each step; none if they are not known."""
    step_keys: tuple[str, ...] = ()
    """What each step says, equal for steps that say the same (`mclabel.agreement`)."""

    @property
    def num_steps(self) -> int:
        return len(self.prefixes) + 1


@dataclass(frozen=True, kw_only=True)
class Told:
    """One rollout's outcome, as an estimator hears of it."""

    prefix: int
    """Index of the prefix it was rolled out from."""
    outcome: Outcome
    num_tokens: int = 0
    path: tuple[int, ...] = ()
    """Prefixes that the rollout went through after its own, in order: those in the table, or
    every one of its steps but the last where the estimator follows all."""
    step_keys: tuple[str, ...] = ()
    """What each of its steps says, as in `SolutionPath.step_keys`."""
    step_tokens: tuple[int, ...] = ()
    """Tokens of each of its steps, where the estimator follows all."""


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """An estimator's word on one solution."""

    hard: tuple[bool | None, ...]
    """One per step: the policy still recovers from it, or None for no verdict."""
    rules: tuple[StepRule, ...]
    """One per step: how the label came about."""
    first_error: int | None
    estimates: tuple[StepEstimate, ...]
    """One per step: its value and interval under the rule."""
    posterior: tuple[float, ...] | None = None
    """Chance of each step that it is the first wrong one, and last of none."""
    root: StepEstimate | None = None
    """Of the bare problem, where its rollouts were stopped by their outcomes; None: the share of
    its rollouts and of the sampled solutions is unbiased."""


ROOT = 0
"""Index of the bare problem among the prefixes."""

Follow = Literal["nothing", "known", "all"]
"""What an estimator is told of a rollout's way: nothing, the prefixes of the table that it went
through, or every prefix, the table growing by those that are new."""


class Estimator(Protocol):
    """Decides which prefix of a problem to roll out next, and when to stop."""

    follow: Follow
    """What `tell` is to hear of a rollout's way."""

    def wanted(self) -> Sequence[int]:
        """Prefix indices to start one more rollout from, each as often as it is named.

        Each call returns only what was not asked for before. Nothing wanted while outcomes
        are still due means: wait for them. Nothing wanted and nothing due: done.
        """
        ...

    def tell(self, rollout: Told) -> None:
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


def outcome_estimate(outcome: Outcome) -> StepEstimate:
    """The value of a solution's last step: certain, and nothing to sample."""
    label = outcome_label(outcome)
    return NOTHING if label is None else StepEstimate(value=float(label), low=None, high=None)


def distinct_prefixes(paths: Sequence[SolutionPath]) -> list[int]:
    """The prefixes of these solutions, rising; the bare problem is not among them."""
    return sorted({prefix for path in paths for prefix in path.prefixes})


def sibling_counts(paths: Sequence[SolutionPath]) -> Counts:
    """Outcomes of the solutions that are free rollouts of the bare problem."""
    counts = Counts()
    for path in paths:
        if path.sampled:
            counts = counts.plus(path.outcome)
    return counts
