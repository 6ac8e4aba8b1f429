"""Drives an estimator with outcomes that are at hand, in place of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mclabel.estimators import Estimator, Judgement, SolutionPath, Told
from mclabel.records import Counts


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    num_prefixes: int
    answer_class: str
    truth: tuple[int | None, ...]
    """First error of each solution, None for none."""
    draw: Callable[[int, int], Told]
    """The rollout of this index from this prefix."""
    values: tuple[float, ...] = ()
    """True value of each prefix, where it is known."""
    group: str = ""
    """What cases are reported by: an answer type, a profile."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What an estimator did with a case."""

    judgements: list[Judgement]
    counts: list[Counts]
    num_decisions: int
    """Calls of `wanted` that asked for something."""

    @property
    def num_tokens(self) -> int:
        return sum(count.num_tokens for count in self.counts)

    @property
    def num_rollouts(self) -> int:
        return sum(count.num_rollouts for count in self.counts)


def replay(estimator: Estimator, case: Case) -> Replay:
    """Do what the estimator wants until it wants no more."""
    counts = [Counts()] * case.num_prefixes
    asked = [0] * case.num_prefixes
    decisions = 0
    while wanted := estimator.wanted():
        decisions += 1
        for prefix in wanted:
            rollout = case.draw(prefix, asked[prefix])
            asked[prefix] += 1
            counts[prefix] = counts[prefix].plus(rollout.outcome, rollout.num_tokens)
            estimator.tell(rollout)
    return Replay(judgements=estimator.judge(counts), counts=counts, num_decisions=decisions)
