"""Measurement of the cost and the quality of an estimator's labels over many cases."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import LabelSource
from mclabel.core.stats.intervals import clopper_pearson
from mclabel.core.stats.values import StepEstimate
from mclabel.data.readers.rows import read_text
from mclabel.labeling.estimators import (
    Estimator,
    EstimatorSettings,
    ProblemEstimator,
    begin_estimator,
    begin_learner,
    decide_together,
    find_strongest_completer_index,
)
from tests.benchmarks.simulation.replay import Case, Game, Replay

COLUMNS = (
    "solutions",
    "tokens",
    "cost",
    "hit",
    "with_error",
    "hit_wrong",
    "true_positive_twice",
    "flagged_and_unsound",
    "sound",
    "sound_flagged",
)
"""Columns of `Measurement.table`, which has one row per case."""


@dataclass
class SourceTally:
    """Comparison of one label source's intervals and values with the truth."""

    labels: int = 0
    covered: int = 0
    width: float = 0.0
    fixed_width: float = 0.0
    """Width of Clopper-Pearson's intervals at the same counts."""
    values: int = 0
    error: float = 0.0
    squared_error: float = 0.0


@dataclass(kw_only=True)
class Measurement:
    """Measurements of one estimator over many cases."""

    table: NDArray[np.float64]
    groups: list[str]
    """Group of each row."""
    sources: Mapping[str, SourceTally]
    """Tally of each label source."""
    means: SourceTally
    """Tally of posterior means: bias and squared error only."""
    beliefs: list[tuple[float, bool]] = field(default_factory=list)
    """Largest posterior of each solution, and whether it was right."""
    causes: Counter[str] = field(default_factory=Counter)
    """Number of wrong first errors, by cause."""
    num_decisions: int = 0
    num_rollouts: int = 0
    seconds: float = 0.0
    """Time of the estimators' decisions and of drawing rollouts."""

    def ratio(self, top: str, bottom: str, weights: NDArray[np.float64] | None = None) -> float:
        """Divide the sum of a column by the sum of another, cases weighted."""
        w = np.ones(len(self.table)) if weights is None else weights
        above, below = (float(w @ self.table[:, COLUMNS.index(name)]) for name in (top, bottom))
        return above / max(below, 1e-9)

    @property
    def tokens_per_solution(self) -> float:
        """Tokens of rollouts for each solution."""
        return self.ratio("tokens", "solutions")

    @property
    def cost_per_solution(self) -> float:
        """Rollout tokens for each solution, weighted by the cost of their completer."""
        return self.ratio("cost", "solutions")

    @property
    def first_error_accuracy(self) -> float:
        """Share of the solutions whose first error, or its absence, was found."""
        return self.ratio("hit", "solutions")

    @property
    def first_error_accuracy_wrong(self) -> float:
        """Share of the solutions with an error whose first error was found."""
        return self.ratio("hit_wrong", "with_error")

    @property
    def f1(self) -> float:
        """F1 of the wrong steps."""
        return self.ratio("true_positive_twice", "flagged_and_unsound")


def measure(
    make: Callable[[Case], Estimator | ProblemEstimator],
    cases: Iterable[Case],
    *,
    on_done: Callable[[Case, ProblemEstimator, Replay], None] = lambda case, checked, done: None,
    intervals: bool = False,
    at_a_time: int = 128,
) -> Measurement:
    """Run an estimator over cases.

    Args:
        make: function that makes the estimator of a case.
        cases: cases with truth, and with values if intervals are to be measured.
        on_done: function called after each case.
        intervals: True to measure coverage, width and bias as well.
        at_a_time: number of concurrent cases, whose decisions are made in one batch as in a
            scheduler.
    """
    sources: dict[str, SourceTally] = defaultdict(SourceTally)
    measurement = Measurement(
        table=np.zeros((0, len(COLUMNS))), groups=[], sources=sources, means=SourceTally()
    )
    waiting = enumerate(cases)
    playing: list[tuple[int, Game]] = []
    rows: dict[int, list[float]] = {}
    groups: dict[int, str] = {}
    while True:
        began = time.perf_counter()
        fresh = islice(waiting, at_a_time - len(playing))
        playing += [(index, Game(make(case), case)) for index, case in fresh]
        decide_together([estimator for _, game in playing for estimator in game.checked.estimators])
        moved = [(index, game, game.move()) for index, game in playing]
        ended = [(index, game, game.end()) for index, game, more in moved if not more]
        playing = [(index, game) for index, game, more in moved if more]
        measurement.seconds += time.perf_counter() - began
        for index, game, done in ended:
            case = game.case
            measurement.num_decisions += done.num_decisions
            measurement.num_rollouts += done.num_rollouts
            rows[index], groups[index] = _row(case, done, measurement), case.group
            if intervals:
                _check_intervals(case, done, sources, measurement.means)
            on_done(case, game.checked, done)
        if not moved:
            break
    measurement.table = np.array([rows[i] for i in sorted(rows)]).reshape(-1, len(COLUMNS))
    measurement.groups += [groups[i] for i in sorted(groups)]
    return measurement


def _row(case: Case, done: Replay, measurement: Measurement) -> list[float]:
    hit = with_error = hit_wrong = both = flagged_and_unsound = sound = sound_flagged = 0
    for path, judgement, truth in zip(case.paths, done.judgements, case.truth, strict=True):
        steps = path.num_steps
        right = judgement.is_decided and judgement.first_error == truth
        hit += right
        with_error += truth is not None
        hit_wrong += right and truth is not None
        true_at = steps if truth is None else truth
        label_at = steps if judgement.first_error is None else judgement.first_error
        both += steps - max(true_at, label_at)
        flagged_and_unsound += 2 * steps - true_at - label_at
        sound += true_at
        sound_flagged += max(0, true_at - label_at)
        if judgement.posterior is not None:
            measurement.beliefs.append((max(judgement.posterior), right))
        if not right:
            measurement.causes[_name_cause(truth, judgement.first_error)] += 1
    return [
        len(case.paths),
        done.num_tokens,
        done.cost,
        hit,
        with_error,
        hit_wrong,
        2 * both,
        flagged_and_unsound,
        sound,
        sound_flagged,
    ]


def _name_cause(truth: int | None, label: int | None) -> str:
    if truth is None:
        return "error where there is none"
    if label is None:
        return "error not found: the answer is right by luck"
    return "too late: recovered by luck" if label > truth else "too early: sound, never recovers"


def distinct_labels(case: Case, done: Replay) -> Iterator[tuple[int, LabelSource, StepEstimate]]:
    """Yield prefix, source and estimate of every step but the last, once for each prefix."""
    seen: set[int] = set()
    for path, judgement in zip(case.paths, done.judgements, strict=True):
        for prefix, source, estimate in zip(
            path.prefixes, judgement.sources, judgement.estimates, strict=False
        ):
            if prefix not in seen:
                seen.add(prefix)
                yield prefix, source, estimate


def _check_intervals(
    case: Case, done: Replay, sources: dict[str, SourceTally], means: SourceTally
) -> None:
    for prefix, source, estimate in distinct_labels(case, done):
        true, counts = (
            case.values[prefix],
            done.counts[find_strongest_completer_index(case.completers)][prefix],
        )
        if math.isnan(true):
            continue
        if estimate.mean is not None:
            _add_value(means, estimate.mean - true)
        if estimate.low is None or estimate.high is None:
            continue
        tally = sources[source]
        tally.labels += 1
        tally.covered += estimate.low <= true <= estimate.high
        tally.width += estimate.high - estimate.low
        trials = counts.num_right + counts.num_wrong + counts.num_truncated
        low, high = clopper_pearson(counts.num_right, trials)
        tally.fixed_width += high - low
        if estimate.value is not None:
            _add_value(tally, estimate.value - true)


def _add_value(tally: SourceTally, error: float) -> None:
    tally.values += 1
    tally.error += error
    tally.squared_error += error * error


class SimulatedRun:
    """Maker of estimators for a run's cases, as labelling makes them on one engine.

    If the estimator has a learner, each case begins with the knowledge learned so far.
    """

    def __init__(self, settings: EstimatorSettings) -> None:
        """Begin a run.

        Args:
            settings: settings of the estimator.

        Raises:
            ConfigError: a file that the settings name cannot be read.
        """
        self.settings = settings
        self.learner = begin_learner(settings, read_text)

    def begin(self, case: Case) -> ProblemEstimator:
        """Make the estimator of a case."""
        knowledge, min_gain = None, None
        if self.learner is not None:
            knowledge, min_gain = self.learner.knowledge, self.learner.min_gain
        return begin_estimator(
            self.settings,
            case.problem,
            knowledge=knowledge,
            min_gain=min_gain,
        )

    def record(self, case: Case, checked: ProblemEstimator, done: Replay) -> None:
        """Let the learner record a finished case."""
        if self.learner is not None:
            checked.record_evidence(self.learner, case.problem, num_tokens=done.num_tokens)

    def fit(self) -> None:
        """Let the learner learn from its recorded evidence, if that is enough."""
        if self.learner is not None and self.learner.is_due:
            self.learner.fit()
