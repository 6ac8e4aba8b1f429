"""Models of a judge's opinion given the true first error, with error rates learned without true
labels.

A judge that names a step is modelled as reading the steps in order until it finds a fault. It finds
a fault with one probability at each sound step, with another at the first wrong step, and with a
third at each later step. A scorer gives a number to each step, which is reduced to a level. The
probability of each level given the previous level is learned separately for sound steps, first
wrong steps and later steps. So correlated scores of neighbouring steps are not multiplied as if
they were independent.

Both models give the likelihood of an opinion under each first error. They fit their rates to
probabilities of first errors (one round of expectation maximisation; Dawid and Skene 1979). An
uninformative judge has the same rates at all kinds of steps, so its opinions have no effect.

Arrays have one row per solution. T is the number of steps of the longest solution; shorter
solutions are padded. In arrays with T + 1 columns, column t means that the first error is at the
0-based step t, and the column at a solution's number of steps means that there is no error.
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
"""Number of classes into which a judge's confidence in its opinion is divided."""
LEVELS = 8
"""Number of levels to which scores are reduced. Each level contains equally many steps of a run."""
STRENGTH = 4.0
"""Weight of the prior on a judge's error rates, in observations."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StepCategories:
    """One category for each step of all solutions, such as an opinion on the step."""

    values: Ints
    """Categories [solution, T], in [0, num_categories); -1 for padding and for steps without a
    category."""
    num_categories: int
    """Number of categories."""


@dataclass(frozen=True, kw_only=True, eq=False)
class SourceOpinions:
    """Opinions of a source (a judge, or the run's own labels), step by step."""

    BEFORE_NAMED_STEP: ClassVar[int] = 0
    AT_NAMED_STEP: ClassVar[int] = 1
    AFTER_NAMED_STEP: ClassVar[int] = 2
    NO_OPINION: ClassVar[int] = 3

    opinions_on_read_steps: StepCategories
    """Opinion on each step that the source has read: 1 for a fault and 0 for none, or the level of
    a scorer. It is -1 for steps that the source has not read, and for padding."""
    conditioning_categories: StepCategories
    """Category of each step, given which the models of other sources predict their opinions; never
    -1.

    For a source that names a step, the category is `BEFORE_NAMED_STEP`, `AT_NAMED_STEP` or
    `AFTER_NAMED_STEP`, and `NO_OPINION` without an opinion. For a scorer it is the step's level, or
    the last category (`num_categories - 1`) without a level."""
    names_step: bool
    """True if the source names a step; False if it gives levels."""
    is_known: NDArray[np.bool_]
    """True for solutions on which the source has an opinion, [solution]."""

    @classmethod
    def from_first_errors(cls, named_steps: Ints, num_steps: Ints) -> SourceOpinions:
        """Return the opinions of a source that names first errors.

        Args:
            named_steps: 0-based index of the step that the source names, [solution]. The number of
                steps means no error, -1 means no opinion.
            num_steps: numbers of steps, [solution].
        """
        step, there = np.arange(int(num_steps.max())), num_steps[:, None]
        at, is_known = named_steps[:, None], named_steps[:, None] >= 0
        is_here = is_known & (step == at) & (at < there)
        is_passed = is_known & (step < at) & (step < there)
        seen = np.where(is_here, 1, np.where(is_passed, 0, -1))
        contexts = np.where(
            step < at,
            cls.BEFORE_NAMED_STEP,
            np.where(step == at, cls.AT_NAMED_STEP, cls.AFTER_NAMED_STEP),
        )
        contexts = np.where(is_known, contexts, cls.NO_OPINION)
        return cls(
            opinions_on_read_steps=StepCategories(values=seen, num_categories=2),
            conditioning_categories=StepCategories(values=contexts, num_categories=4),
            names_step=True,
            is_known=named_steps >= 0,
        )


class JudgeModel(Protocol):
    """Model of a judge's opinions on a run's solutions, with its current error rates.

    A first error is given by the 0-based index of its step. The number of steps means no error.
    """

    @abstractmethod
    def log_likelihood(self) -> Floats:
        """Return the log-likelihood of the opinions given each possible first error.

        Its shape is [solution, T + 1]; see the module. It is 0 in the padding.
        """
        ...

    @abstractmethod
    def fit(self, first_error_chances: Floats) -> Self:
        """Return the model with error rates fitted to first-error probabilities.

        Args:
            first_error_chances: probability of each first error, [solution, T + 1]; see the module.
        """
        ...

    @abstractmethod
    def error_rates(self) -> Mapping[str, float]:
        """Return the judge's error rates by name; empty if the model has none."""
        ...

    @abstractmethod
    def step_opinions(self) -> SourceOpinions:
        """Return the judge's opinions as one category per step."""
        ...


def compute_step_log_likelihood(
    opinion_probabilities: Floats | None, step_contexts: Ints, opinions: Ints
) -> Floats:
    """Return the log-likelihood of a judge's opinions on steps, given each possible first error.

    Args:
        opinion_probabilities: probabilities of the judge's opinion on a step given the step's
            context (a category such as the opinion of another judge), [kind, context, opinion]. The
            kinds are a sound step, the first wrong step, and a later step. None gives a
            log-likelihood of 0.
        step_contexts: context of each step, [solution, T].
        opinions: opinion on each step, [solution, T]; -1 for padding and steps without an opinion.

    Returns:
        The log-likelihoods, [solution, T + 1]: column t is the first error at step t, and the
        column at the number of steps is no error.
    """
    if opinion_probabilities is None:
        return np.zeros((len(opinions), opinions.shape[1] + 1))
    by_kind = np.log(opinion_probabilities)[:, step_contexts, np.maximum(opinions, 0)]
    sound, first, later = np.where(opinions >= 0, by_kind, 0.0)
    zero = np.zeros((len(sound), 1))
    before = np.concatenate([zero, np.cumsum(sound, 1)], axis=1)
    after = np.concatenate([np.cumsum(later[:, ::-1], 1)[:, ::-1], zero], axis=1)
    return np.asarray(before + np.concatenate([first + after[:, 1:], zero], axis=1))


def estimate_opinion_probabilities(
    first_error_chances: Floats,
    step_contexts: Ints,
    opinions: Ints,
    shape: tuple[int, int],
    prior_counts: Floats,
) -> Floats:
    """Estimate the probability of each opinion on a step, by kind of step and context.

    Kinds of steps are not observed, so each opinion counts for all three kinds, weighted by the
    probability that the step is of this kind.

    Args:
        first_error_chances: probability of each first error, [solution, T + 1].
        step_contexts: context of each step, [solution, T].
        opinions: opinion on each step, [solution, T]; -1 for padding and steps without an opinion.
        shape: number of contexts, and number of different opinions.
        prior_counts: prior count of each opinion, [opinion], which is added to the counts of every
            context.

    Returns:
        Probabilities of the opinions, [kind, context, opinion]. The kinds are a sound step, the
        first wrong step, and a later step.
    """
    there = opinions >= 0
    is_first = first_error_chances[:, : opinions.shape[1]]
    is_later = np.cumsum(is_first, 1) - is_first
    kinds = np.stack([1 - is_first - is_later, is_first, is_later])
    counts = np.zeros((3, *shape))
    for kind in range(3):
        np.add.at(counts[kind], (step_contexts[there], opinions[there]), kinds[kind][there])
    together = counts.sum(0) + prior_counts
    counts = counts + STRENGTH * together / together.sum(1, keepdims=True)
    return np.asarray(counts / counts.sum(-1, keepdims=True))


@dataclass(frozen=True, kw_only=True, eq=False)
class FirstErrorJudgeModel:
    """Model of a judge that names the first error. Its methods implement `JudgeModel`."""

    num_steps: Ints
    """Numbers of steps, [solution]."""
    named_steps: Ints
    """0-based index of the step that the judge calls the first error, [solution]. The number of
    steps means no error, -1 means no opinion."""
    sureness_classes: Ints
    """Class of the judge's confidence in its opinion, [solution], from 0 to SURENESS - 1
    (highest)."""
    false_alarm: float = 0.05
    """Probability that the judge finds a fault at a sound step."""
    detection: float = 0.5
    """Probability that the judge finds a fault at the first wrong step."""
    later_detection: float = 0.3
    """Probability that the judge finds a fault at a step after the first wrong step."""
    sureness_chances: Floats | None = None
    """Probabilities of the classes of confidence, [relation, SURENESS]. The relations are: the
    judge names the first error; it names an earlier step; it names a later step, or none although
    there is an error; there is no error and it names none. None means equal probabilities."""

    def log_likelihood(self) -> Floats:
        """Return the log-likelihood of the opinions given each first error, [solution, T + 1]."""
        table = np.log(
            np.clip([self.false_alarm, self.detection, self.later_detection], 1e-6, 1 - 1e-6)
        )
        passed = np.log1p(-np.exp(table))
        likely = self._count_steps_of_kind(0) * table[0] + self._count_steps_of_kind(1) * passed[0]
        likely += self._count_steps_of_kind(2) * table[1] + self._count_steps_of_kind(3) * passed[1]
        likely += self._count_steps_of_kind(4) * table[2] + self._count_steps_of_kind(5) * passed[2]
        if self.sureness_chances is not None:
            likely += np.log(self.sureness_chances)[
                self._classify_named_steps(), self.sureness_classes[:, None]
            ]
        return np.asarray(np.where(self._allowed_errors, likely, 0.0))

    def fit(self, first_error_chances: Floats) -> Self:
        """Return the model with error rates fitted to first-error probabilities.

        Args:
            first_error_chances: probability of each first error, [solution, T + 1]; see the module.
        """
        weights = np.where(self._allowed_errors, first_error_chances, 0.0)
        detected, passed = (
            [float((weights * self._count_steps_of_kind(kind + other)).sum()) for kind in (0, 2, 4)]
            for other in (0, 1)
        )
        relation, sure = self._classify_named_steps(), np.zeros((4, SURENESS))
        np.add.at(
            sure,
            (relation, np.broadcast_to(self.sureness_classes[:, None], weights.shape)),
            weights,
        )
        towards = (sure.sum(0) + 1) / (sure.sum() + SURENESS)
        sure = sure + STRENGTH * towards
        towards_rates = (0.05, 0.05, 0.05)
        rates = [
            (a + STRENGTH * t) / (a + b + STRENGTH)
            for a, b, t in zip(detected, passed, towards_rates, strict=True)
        ]
        return type(self)(
            num_steps=self.num_steps,
            named_steps=self.named_steps,
            sureness_classes=self.sureness_classes,
            false_alarm=rates[0],
            detection=rates[1],
            later_detection=rates[2],
            sureness_chances=sure / sure.sum(1, keepdims=True),
        )

    def error_rates(self) -> Mapping[str, float]:
        """Return the rates `false_alarm`, `detection` and `later`."""
        return {
            "false_alarm": self.false_alarm,
            "detection": self.detection,
            "later": self.later_detection,
        }

    def step_opinions(self) -> SourceOpinions:
        """Return the judge's opinions as one category per step."""
        return SourceOpinions.from_first_errors(self.named_steps, self.num_steps)

    @property
    def _allowed_errors(self) -> NDArray[np.bool_]:
        errors = np.arange(int(self.num_steps.max()) + 1)
        return (self.named_steps[:, None] >= 0) & (errors <= self.num_steps[:, None])

    def _count_steps_of_kind(self, kind: int) -> Floats:
        """Return how many steps of one kind each solution has, given each first error.

        The shape is [solution, T + 1]. "Fault" means that the judge finds a fault at the step.

        Args:
            kind: 0: sound steps with a fault; 1: sound steps without one; 2: first wrong steps with
                a fault; 3: first wrong steps without one; 4: later steps with a fault; 5: later
                steps without one.
        """
        named, steps = self.named_steps[:, None], self.num_steps[:, None]
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

    def _classify_named_steps(self) -> Ints:
        """Return the relation of the named step to each first error, [solution, T + 1].

        The relations are 0 to 3, in the order in which `sureness_chances` lists them.
        """
        named, steps = self.named_steps[:, None], self.num_steps[:, None]
        error = np.arange(int(self.num_steps.max()) + 1)[None]
        relation = np.where(named < error, 1, np.where(named > error, 2, 0))
        return np.asarray(np.where((named == steps) & (error == steps), 3, relation))


@dataclass(frozen=True, kw_only=True, eq=False)
class ScorerModel:
    """Model of a scorer, which scores each step in [0, 1]. It implements `JudgeModel`.

    Scores are reduced to `LEVELS` levels, from the lowest scores (0) to the highest.
    """

    num_steps: Ints
    """Numbers of steps, [solution]."""
    levels: Ints
    """Level of each step's score, [solution, T]; -1 beyond a solution's length, and for solutions
    without scores."""
    level_transitions: Floats | None = None
    """Probability of a level given the level of the previous step, [kind, LEVELS + 1, LEVELS]. The
    kinds are a sound step, the first wrong step, and a later step. The previous level `LEVELS`
    stands for the beginning of a solution. None means equal probabilities."""

    @classmethod
    def from_scores(cls, scores: Sequence[Sequence[float] | None], num_steps: Ints) -> ScorerModel:
        """Return a model in which scores are reduced to levels that contain equally many steps.

        Args:
            scores: scores of the steps of each solution; None for a solution without scores.
            num_steps: numbers of steps, [solution].
        """
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
        """Return the log-likelihood of the scores given each first error, [solution, T + 1]."""
        return compute_step_log_likelihood(
            self.level_transitions, self._preceding_levels, self.levels
        )

    def fit(self, first_error_chances: Floats) -> Self:
        """Return the model with `level_transitions` fitted to first-error probabilities.

        Args:
            first_error_chances: probability of each first error, [solution, T + 1]. Column t is the
                first error at step t, and the column at a solution's number of steps is no error.
        """
        levels = np.bincount(self.levels[self.levels >= 0], minlength=LEVELS) + 1.0
        prior_counts = STRENGTH * levels / levels.sum()
        shape = (LEVELS + 1, LEVELS)
        return type(self)(
            num_steps=self.num_steps,
            levels=self.levels,
            level_transitions=estimate_opinion_probabilities(
                first_error_chances, self._preceding_levels, self.levels, shape, prior_counts
            ),
        )

    def error_rates(self) -> Mapping[str, float]:
        """Return no rates: a scorer has no error rates that can be reported."""
        return {}

    def step_opinions(self) -> SourceOpinions:
        """Return the level of each step as the scorer's opinion on it."""
        contexts = np.where(self.levels < 0, LEVELS, self.levels)
        return SourceOpinions(
            opinions_on_read_steps=StepCategories(values=self.levels, num_categories=LEVELS),
            conditioning_categories=StepCategories(values=contexts, num_categories=LEVELS + 1),
            names_step=False,
            is_known=np.asarray((self.levels >= 0).any(1)),
        )

    @property
    def _preceding_levels(self) -> Ints:
        start = np.full((len(self.levels), 1), LEVELS)
        return np.concatenate([start, np.maximum(self.levels[:, :-1], 0)], axis=1)
