"""Drives an estimator with outcomes that are at hand, in place of an engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mclabel.core.records import Counts
from mclabel.labeling.estimators import (
    CheckedEstimator,
    Completer,
    Estimator,
    Judgement,
    Probe,
    ProblemEstimator,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A problem whose rollouts can be drawn without an engine, and whose truth is known."""

    id: str
    paths: tuple[SolutionPath, ...]
    """One path per solution."""
    num_prefixes: int
    """Number of distinct prefixes, the bare problem included."""
    answer_class: str
    """Kind of the problem's gold answer: a result of `mclabel.labeling.estimators.answer_class`."""
    truth: tuple[int | None, ...]
    """True first error of each solution; None where it has none."""
    draw: Callable[[Probe, int], RecordedRollout]
    """Draws one of a completer's rollouts from a prefix: `draw(probe, index)`."""
    values: tuple[float, ...] = ()
    """True value of each prefix, of the strongest completer; empty where they are unknown."""
    group: str = ""
    """Group of cases that this one is reported with: an answer type, a profile."""
    completers: tuple[Completer, ...] = (Completer(),)
    """The models that can roll out."""

    @property
    def problem(self) -> ProblemPaths:
        """The problem as an estimator receives it."""
        return ProblemPaths(
            paths=self.paths, answer_class=self.answer_class, completers=self.completers
        )


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What an estimator did with a case."""

    judgements: list[Judgement]
    """One judgement per solution."""
    counts: list[list[Counts]]
    """Outcomes of the rollouts, of each completer one per prefix."""
    costs: list[float]
    """Of each completer's tokens."""
    num_decisions: int
    """Number of calls of `wanted` that asked for something."""

    @property
    def num_tokens(self) -> int:
        """Tokens of all rollouts."""
        return sum(count.num_tokens for own in self.counts for count in own)

    @property
    def cost(self) -> float:
        """Tokens of all rollouts, those of each completer at its cost."""
        tokens = [sum(count.num_tokens for count in own) for own in self.counts]
        return sum(a * b for a, b in zip(tokens, self.costs, strict=True))

    @property
    def num_rollouts(self) -> int:
        """Number of all rollouts."""
        return sum(count.num_rollouts for own in self.counts for count in own)


def replay(estimator: Estimator | ProblemEstimator, case: Case) -> Replay:
    """Draw what the estimator wants until it wants no more.

    Raises:
        ComponentError: the estimator breaks the rules of the protocol.
    """
    game = Game(estimator, case)
    while game.move():
        pass
    return game.end()


class Game:
    """One estimator and the rollouts it has drawn."""

    def __init__(self, estimator: Estimator | ProblemEstimator, case: Case) -> None:
        """Begin with a case.

        Args:
            estimator: of the case, without any rollouts so far.
            case: to draw from.
        """
        self.case = case
        self.checked = (
            estimator
            if isinstance(estimator, ProblemEstimator)
            else CheckedEstimator(estimator, case.problem)
        )
        self._counts = [[Counts()] * case.num_prefixes for _ in case.completers]
        self._num_decisions = 0

    def move(self) -> bool:
        """Make one decision and draw its rollouts; return False if nothing is wanted.

        Raises:
            ComponentError: the estimator asks for a prefix that is not there, or without end.
        """
        wanted = self.checked.wanted(self.case.num_prefixes)
        for probe in wanted:
            own = self._counts[probe.completer]
            rollout = self.case.draw(probe, own[probe.prefix].num_rollouts)
            own[probe.prefix] = own[probe.prefix].plus(rollout.outcome, rollout.num_tokens)
            self.checked.record(rollout)
        self._num_decisions += bool(wanted)
        return bool(wanted)

    def end(self) -> Replay:
        """Let the estimator label the solutions.

        Raises:
            ComponentError: it does not give one label per step.
        """
        return Replay(
            judgements=self.checked.judge(self._counts),
            counts=self._counts,
            costs=[completer.cost for completer in self.case.completers],
            num_decisions=self._num_decisions,
        )
