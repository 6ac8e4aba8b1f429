"""Drives an estimator with outcomes that are at hand, in place of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mclabel.estimators import (
    CheckedEstimator,
    Estimator,
    Judgement,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
)
from mclabel.records import Counts, Outcome


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    """One path per solution."""
    num_prefixes: int
    """Number of distinct prefixes, the bare problem included."""
    answer_class: str
    """Kind of the problem's gold answer: a result of `mclabel.estimators.answer_class`."""
    truth: tuple[int | None, ...]
    """True first error of each solution; None where it has none."""
    draw: Callable[[int, int], RecordedRollout]
    """Draws the rollout of an index from a prefix: `draw(prefix, index)`."""
    values: tuple[float, ...] = ()
    """True value of each prefix; empty where they are unknown."""
    group: str = ""
    """Group of cases that this one is reported with: an answer type, a profile."""

    @property
    def problem(self) -> ProblemPaths:
        """The problem as an estimator receives it."""
        return ProblemPaths(paths=self.paths, answer_class=self.answer_class)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What an estimator did with a case."""

    judgements: list[Judgement]
    """One judgement per solution."""
    counts: list[Counts]
    """Outcomes of the rollouts, one per prefix."""
    num_decisions: int
    """Number of calls of `wanted` that asked for something."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all rollouts."""
        return sum(count.num_tokens for count in self.counts)

    @property
    def num_rollouts(self) -> int:
        """Number of all rollouts."""
        return sum(count.num_rollouts for count in self.counts)


def replay(estimator: Estimator, case: Case) -> Replay:
    """Draw what the estimator wants until it wants no more.

    Raises:
        ComponentError: the estimator breaks the rules of the protocol.
    """
    game = Game(estimator, case)
    while game.move():
        pass
    return game.end()


_OUTCOMES = tuple(Outcome)


class Game:
    """One estimator and the rollouts it has drawn."""

    def __init__(self, estimator: Estimator, case: Case) -> None:
        """Begin with a case.

        Args:
            estimator: of the case, without any rollouts so far.
            case: to draw from.
        """
        self.estimator, self.case = estimator, case
        self._checked = CheckedEstimator(estimator, case.problem)
        self._seen = [dict.fromkeys(_OUTCOMES, 0) for _ in range(case.num_prefixes)]
        self._tokens = [0] * case.num_prefixes
        self._asked = [0] * case.num_prefixes
        self._num_decisions = 0

    def move(self) -> bool:
        """Make one decision and draw its rollouts; return False if nothing is wanted.

        Raises:
            ComponentError: the estimator asks for a prefix that is not there, or without end.
        """
        wanted = self._checked.wanted(len(self._asked))
        draw, asked = self.case.draw, self._asked
        for prefix in wanted:
            rollout = draw(prefix, asked[prefix])
            asked[prefix] += 1
            self._seen[prefix][rollout.outcome] += 1
            self._tokens[prefix] += rollout.num_tokens
            self._checked.record(rollout)
        self._num_decisions += bool(wanted)
        return bool(wanted)

    def end(self) -> Replay:
        """Let the estimator label the solutions.

        Raises:
            ComponentError: it does not give one label per step.
        """
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
            judgements=self._checked.judge(counts),
            counts=counts,
            num_decisions=self._num_decisions,
        )
