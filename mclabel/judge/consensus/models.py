"""Models of a judge's opinion given the first error, with error rates that are learned without
truth.

A judge that names a step is taken to read step after step until it finds fault: with one chance at
each sound step, with another at the first wrong one, with a third at each step after it. A scorer
gives a number to each step; how often each size of number follows the one before is learned apart
for sound steps, first wrong ones and later ones, so that scores that hang together are not counted
as so many witnesses. Either model gives the likelihood of an opinion under each first error, and
learns its rates from how likely each first error is (one round of expectation maximisation; Dawid
and Skene 1979). A judge that knows nothing has the same rates everywhere, and weighs nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SURENESS = 4
"""Number of classes of a judge's confidence in the step that it names."""
LEVELS = 8
"""Classes of a scorer's numbers, each with as many of a run's steps."""
STRENGTH = 4.0
"""Weight of the prior on a judge's rates, in observations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """A category per step."""

    values: Ints
    """[solution, T], in [0, count); -1 where there is none."""
    count: int


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceOpinions:
    """Opinions of a source, step by step."""

    NOT_YET: ClassVar[int] = 0
    HERE: ClassVar[int] = 1
    BEFORE: ClassVar[int] = 2
    UNKNOWN: ClassVar[int] = 3

    seen: Steps
    """For each step that the source has read: 1 if it finds a fault and 0 if not, or its level; -1
    for other steps."""
    heard: Steps
    """The opinion in the form on which the models of other sources condition; never -1.

    One source may repeat another. For a source that names a step, the value is one of the four
    constants above. For a scorer it is the level, or `count - 1` where there is no level.
    """
    names: bool
    """True if the source names a step; False if it gives levels."""
    is_known: NDArray[np.bool_]
    """[solution]: whether the source has an opinion on the solution."""

    @classmethod
    def of_named(cls, named: Ints, num_steps: Ints) -> SourceOpinions:
        """Return the opinions of a source that names the first error, as in `Locations`."""
        step, there = np.arange(int(num_steps.max())), num_steps[:, None]
        at, is_known = named[:, None], named[:, None] >= 0
        is_here = is_known & (step == at) & (at < there)
        is_passed = is_known & (step < at) & (step < there)
        seen = np.where(is_here, 1, np.where(is_passed, 0, -1))
        heard = np.where(step < at, cls.NOT_YET, np.where(step == at, cls.HERE, cls.BEFORE))
        heard = np.where(is_known, heard, cls.UNKNOWN)
        return cls(
            seen=Steps(values=seen, count=2),
            heard=Steps(values=heard, count=4),
            names=True,
            is_known=named >= 0,
        )


class JudgeModel(Protocol):
    """A judge's opinions on a run's solutions, and what is known of its rates.

    First errors are counted by step from 0; that there is none is the index behind the last step.
    """

    @abstractmethod
    def log_likelihood(self) -> Floats:
        """Return the log-likelihood of the opinions, [solution, T + 1] by first error; 0 beyond
        a solution's length.
        """
        ...

    @abstractmethod
    def fitted(self, chances: Floats) -> Self:
        """Return the model with rates fitted to first-error probabilities, [solution, T + 1]."""
        ...

    @abstractmethod
    def rates(self) -> Mapping[str, float]:
        """Return the rates, by name."""
        ...

    @abstractmethod
    def said(self) -> SourceOpinions:
        """Return the judge's opinions, step by step."""
        ...


def step_likelihood(table: Floats | None, contexts: Ints, seen: Ints) -> Floats:
    """Return the log-likelihood of a judge's step opinions, [solution, T + 1] by first error.

    Args:
        table: [kind, context, value], chances at a sound step, the first wrong one, a later one;
            None says nothing.
        contexts: [solution, T], what the chances depend on.
        seen: [solution, T], the value; -1 for none.
    """
    if table is None:
        return np.zeros((len(seen), seen.shape[1] + 1))
    by_kind = np.log(table)[:, contexts, np.maximum(seen, 0)]
    sound, first, later = np.where(seen >= 0, by_kind, 0.0)
    zero = np.zeros((len(sound), 1))
    before = np.concatenate([zero, np.cumsum(sound, 1)], axis=1)
    after = np.concatenate([np.cumsum(later[:, ::-1], 1)[:, ::-1], zero], axis=1)
    return np.asarray(before + np.concatenate([first + after[:, 1:], zero], axis=1))


def fitted_table(
    chances: Floats, contexts: Ints, seen: Ints, shape: tuple[int, int], usual: Floats
) -> Floats:
    """Return the table of `step_likelihood` fitted to these probabilities of first errors.

    Args:
        chances: [solution, T + 1]
        contexts: see `step_likelihood`.
        seen: see `step_likelihood`.
        shape: numbers of contexts and of values.
        usual: [value], observations that every context has before any.
    """
    there = seen >= 0
    is_first = chances[:, : seen.shape[1]]
    is_later = np.cumsum(is_first, 1) - is_first
    kinds = np.stack([1 - is_first - is_later, is_first, is_later])
    counts = np.zeros((3, *shape))
    for kind in range(3):
        np.add.at(counts[kind], (contexts[there], seen[there]), kinds[kind][there])
    together = counts.sum(0) + usual
    counts = counts + STRENGTH * together / together.sum(1, keepdims=True)
    return np.asarray(counts / counts.sum(-1, keepdims=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class Locations:
    """Model of a judge that names the first error."""

    num_steps: Ints
    """[solution]"""
    named: Ints
    """[solution]: the step it names, the number of steps for none, -1 where it is not known."""
    sureness: Ints
    """[solution]: class of how sure it is, in [0, SURENESS)."""
    false_alarm: float = 0.05
    """Chance that it finds fault with a sound step."""
    detection: float = 0.5
    """Chance that it finds fault with the first wrong one."""
    later: float = 0.3
    """Chance that it finds fault with a step after that."""
    sure: Floats | None = None
    """[relation, SURENESS]: shares of sureness where it names the first error, one before it, one
    after it or none, and where there is none and it names none; None is the same everywhere."""

    def log_likelihood(self) -> Floats:
        """See `JudgeModel`."""
        table = np.log(np.clip([self.false_alarm, self.detection, self.later], 1e-6, 1 - 1e-6))
        passed = np.log1p(-np.exp(table))
        likely = self._counts(0) * table[0] + self._counts(1) * passed[0]
        likely += self._counts(2) * table[1] + self._counts(3) * passed[1]
        likely += self._counts(4) * table[2] + self._counts(5) * passed[2]
        if self.sure is not None:
            likely += np.log(self.sure)[self._relation(), self.sureness[:, None]]
        return np.asarray(np.where(self._known, likely, 0.0))

    def fitted(self, chances: Floats) -> Self:
        """See `JudgeModel`."""
        weights = np.where(self._known, chances, 0.0)
        detected, passed = (
            [float((weights * self._counts(kind + other)).sum()) for kind in (0, 2, 4)]
            for other in (0, 1)
        )
        relation, sure = self._relation(), np.zeros((4, SURENESS))
        np.add.at(sure, (relation, np.broadcast_to(self.sureness[:, None], weights.shape)), weights)
        towards = (sure.sum(0) + 1) / (sure.sum() + SURENESS)
        sure = sure + STRENGTH * towards
        towards_rates = (0.05, 0.05, 0.05)
        rates = [
            (a + STRENGTH * t) / (a + b + STRENGTH)
            for a, b, t in zip(detected, passed, towards_rates, strict=True)
        ]
        return type(self)(
            num_steps=self.num_steps,
            named=self.named,
            sureness=self.sureness,
            false_alarm=rates[0],
            detection=rates[1],
            later=rates[2],
            sure=sure / sure.sum(1, keepdims=True),
        )

    def rates(self) -> Mapping[str, float]:
        """See `JudgeModel`."""
        return {
            "false_alarm": self.false_alarm,
            "detection": self.detection,
            "later": self.later,
        }

    def said(self) -> SourceOpinions:
        """See `JudgeModel`."""
        return SourceOpinions.of_named(self.named, self.num_steps)

    @property
    def _known(self) -> NDArray[np.bool_]:
        errors = np.arange(int(self.num_steps.max()) + 1)
        return (self.named[:, None] >= 0) & (errors <= self.num_steps[:, None])

    def _counts(self, kind: int) -> Floats:
        """[solution, T + 1]: sound steps called wrong, and passed; the first wrong one, and later
        ones likewise.
        """
        named, steps = self.named[:, None], self.num_steps[:, None]
        error = np.arange(int(self.num_steps.max()) + 1)[None]
        is_named, is_error = named < steps, error < steps
        if kind == 0:
            return np.asarray(is_named & (named < error), dtype=np.float64)
        if kind == 1:
            return np.minimum(named, error).astype(np.float64)
        if kind == 2:
            return np.asarray(is_named & (named == error), dtype=np.float64)
        if kind == 3:
            return np.asarray(is_error & (named > error), dtype=np.float64)
        if kind == 4:
            return np.asarray(is_named & (named > error), dtype=np.float64)
        return np.asarray(np.maximum(named - error - 1, 0) * is_error, dtype=np.float64)

    def _relation(self) -> Ints:
        named, steps = self.named[:, None], self.num_steps[:, None]
        error = np.arange(int(self.num_steps.max()) + 1)[None]
        relation = np.where(named < error, 1, np.where(named > error, 2, 0))
        return np.asarray(np.where((named == steps) & (error == steps), 3, relation))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scores:
    """Model of a scorer, which gives a number in [0, 1] to each step."""

    num_steps: Ints
    """[solution]"""
    levels: Ints
    """[solution, T]: class of each step's number; -1 beyond a solution's length, and where its
    scores are not known."""
    moves: Floats | None = None
    """[kind, LEVELS + 1, LEVELS]: chance of a level after the one before it, or as the first one
    (the last row), at a sound step, the first wrong one and a later one; None is even."""

    @classmethod
    def of(cls, scores: Sequence[Sequence[float] | None], num_steps: Ints) -> Scores:
        """Cut the numbers into levels that contain equally many steps."""
        everything = np.array(
            [s for own_scores in scores if own_scores is not None for s in own_scores]
        )
        cuts = np.unique(np.quantile(everything, np.arange(1, LEVELS) / LEVELS))
        levels = np.full((len(num_steps), int(num_steps.max())), -1)
        for row, own_scores in enumerate(scores):
            if own_scores is not None:
                levels[row, : len(own_scores)] = np.searchsorted(cuts, own_scores)
        return cls(num_steps=num_steps, levels=levels)

    def log_likelihood(self) -> Floats:
        """See `JudgeModel`."""
        return step_likelihood(self.moves, self._before, self.levels)

    def fitted(self, chances: Floats) -> Self:
        """See `JudgeModel`."""
        levels = np.bincount(self.levels[self.levels >= 0], minlength=LEVELS) + 1.0
        usual = STRENGTH * levels / levels.sum()
        shape = (LEVELS + 1, LEVELS)
        moves = fitted_table(chances, self._before, self.levels, shape, usual)
        return type(self)(num_steps=self.num_steps, levels=self.levels, moves=moves)

    def rates(self) -> Mapping[str, float]:
        """See `JudgeModel`."""
        return {}

    def said(self) -> SourceOpinions:
        """See `JudgeModel`."""
        heard = np.where(self.levels < 0, LEVELS, self.levels)
        return SourceOpinions(
            seen=Steps(values=self.levels, count=LEVELS),
            heard=Steps(values=heard, count=LEVELS + 1),
            names=False,
            is_known=np.asarray((self.levels >= 0).any(1)),
        )

    @property
    def _before(self) -> Ints:
        start = np.full((len(self.levels), 1), LEVELS)
        return np.concatenate([start, np.maximum(self.levels[:, :-1], 0)], axis=1)
