"""Drives an estimator with outcomes that are at hand, in place of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mclabel.estimators import Estimator, Judgement, RecordedRollout, SolutionPath
from mclabel.records import Counts, Outcome


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    num_prefixes: int
    answer_class: str
    truth: tuple[int | None, ...]
    """First error of each solution, None for none."""
    draw: Callable[[int, int], RecordedRollout]
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
    game = Game(estimator, case)
    while game.move():
        pass
    return game.end()


_OUTCOMES = tuple(Outcome)


class Game:
    """One estimator and the rollouts it has drawn."""

    def __init__(self, estimator: Estimator, case: Case) -> None:
        self.estimator, self.case = estimator, case
        self._seen = [dict.fromkeys(_OUTCOMES, 0) for _ in range(case.num_prefixes)]
        self._tokens = [0] * case.num_prefixes
        self._asked = [0] * case.num_prefixes
        self._num_decisions = 0

    def move(self) -> bool:
        """One decision and its rollouts; False if nothing is wanted."""
        wanted = self.estimator.wanted()
        draw, asked = self.case.draw, self._asked
        for prefix in wanted:
            rollout = draw(prefix, asked[prefix])
            asked[prefix] += 1
            self._seen[prefix][rollout.outcome] += 1
            self._tokens[prefix] += rollout.num_tokens
            self.estimator.record(rollout)
        self._num_decisions += bool(wanted)
        return bool(wanted)

    def end(self) -> Replay:
        counts = [
            Counts(
                num_right=seen[Outcome.RIGHT],
                num_wrong=seen[Outcome.WRONG],
                num_truncated=seen[Outcome.TRUNCATED],
                num_ungraded=seen[Outcome.UNGRADED],
                num_tokens=tokens,
            )
            for seen, tokens in zip(self._seen, self._tokens, strict=True)
        ]
        return Replay(
            judgements=self.estimator.judge(counts),
            counts=counts,
            num_decisions=self._num_decisions,
        )
