"""Measures calibration: whether predicted probabilities and intervals agree with observations.

A prediction is a probability, such as the value of a step: the probability that a rollout from it
is right. Its observation is the share of its events that happened (a single event, or the rollouts
of a reference). Each prediction counts once. Intervals are bootstraps over problems.

Intervals of step values are checked with rollouts of a reference, which is another run of the same
solutions (`count_independent_rollouts`). The reference's share of right rollouts is itself noisy,
so the share of intervals that contain it is lower than the true coverage. A posterior of the value
given the reference alone would also give too low a figure, since an interval depends on its own
counts. Coverage is therefore the mean posterior probability that the value is in its interval,
given the rollouts of both runs and Jeffreys' prior. A posterior is not affected by stopping rules.
If the reference is much larger than the labels' own counts, this figure and the share of intervals
that contain the reference's share both approach the true coverage.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from mclabel.core.records import Counts, LabeledSolution, Outcome, Rollout, StepLabel
from mclabel.core.stats.bootstrap import (
    Estimate,
    divide_or_nan,
    draw_resample_weights,
    estimate_from_sums,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.core.stats.values import count_trials

NUM_BINS = 10
"""Number of bins of predicted probabilities."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A predicted probability of events, and the share of these events that happened."""

    problem_id: str
    predicted: float
    """Probability of an event, in [0, 1]."""
    observed: float
    """Share of the events that happened, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class CalibrationBin:
    """Summary of the predictions whose probability is in one range."""

    low: float
    """Lower end of the range; exclusive, except for 0."""
    high: float
    """Upper end of the range, inclusive."""
    num_predictions: int
    predicted: float
    """Mean predicted probability."""
    observed: Estimate
    """Mean share of events that happened."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Comparison of predictions with observations."""

    num_problems: int
    num_predictions: int
    bins: tuple[CalibrationBin, ...]
    """Bins that contain predictions."""
    ece: Estimate
    """Expected calibration error (Naeini et al. 2015): mean over predictions of the absolute
    difference between the mean prediction and the mean observation of their bin. Noise makes it
    larger, and even larger in the resamples from which its interval is computed."""
    brier: Estimate
    """Mean squared difference between predictions and single events (Brier 1950)."""
    base_brier: Estimate
    """Brier score if every prediction were the observed share of all events."""


def measure_calibration(
    predictions: Sequence[Prediction], *, num_bins: int = NUM_BINS, seed: int = 0
) -> Calibration | None:
    """Measure the calibration of predictions; None if there are no predictions.

    Args:
        predictions: predictions with their observations, any number for each problem.
        num_bins: number of bins of equal width.
        seed: seed of the bootstrap.
    """
    if not predictions:
        return None
    problems = [f.problem_id for f in predictions]
    predicted = np.array([f.predicted for f in predictions], dtype=np.float64)
    observed = np.array([f.observed for f in predictions], dtype=np.float64)
    edges = np.linspace(0, 1, num_bins + 1)
    inside = np.searchsorted(edges[1:-1], predicted)[:, None] == np.arange(num_bins)
    binned = [inside, inside * predicted[:, None], inside * observed[:, None]]
    squared = observed * (1 - predicted) ** 2 + (1 - observed) * predicted**2
    table = sum_by_problem(
        problems, np.concatenate([*binned, np.stack([squared, observed], 1)], 1).astype(np.float64)
    )
    weights = draw_resample_weights(len(table), seed)
    counts, of_predicted, of_observed = (
        table[:, i * num_bins : (i + 1) * num_bins] for i in range(3)
    )
    return Calibration(
        num_problems=len(table),
        num_predictions=len(predictions),
        bins=tuple(
            CalibrationBin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                num_predictions=int(counts[:, i].sum()),
                predicted=float(of_predicted[:, i].sum() / counts[:, i].sum()),
                observed=estimate_ratio(of_observed[:, i], counts[:, i], weights),
            )
            for i in range(num_bins)
            if counts[:, i].any()
        ),
        ece=estimate_from_sums(table, weights, lambda sums: _compute_ece(sums, num_bins)),
        brier=estimate_from_sums(
            table,
            weights,
            lambda sums: divide_or_nan(sums[..., -2], _count_predictions(sums, num_bins)),
        ),
        base_brier=estimate_from_sums(
            table, weights, lambda sums: _compute_base_brier(sums, num_bins)
        ),
    )


def _count_predictions(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    total: NDArray[np.float64] = sums[..., :num_bins].sum(-1)
    return total


def _compute_ece(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    apart = sums[..., num_bins : 2 * num_bins] - sums[..., 2 * num_bins : 3 * num_bins]
    return divide_or_nan(np.abs(apart).sum(-1), _count_predictions(sums, num_bins))


def _compute_base_brier(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    share = divide_or_nan(sums[..., -1], _count_predictions(sums, num_bins))
    return share * (1 - share)


@dataclass(frozen=True, kw_only=True)
class IntervalCheck:
    """Check of the intervals of step values of one label source with a reference's rollouts."""

    num_intervals: int
    """Number of checked intervals. Solutions that share a prefix share its interval."""
    num_unchecked: int
    """Number of intervals of prefixes for which the reference has no independent rollouts. If there
    are many, the checked intervals may be a biased selection. Suppose that both runs stop at the
    first success and have the same maximum number of rollouts. Then the reference has no
    independent rollouts exactly for those prefixes from which all rollouts of the labels failed."""
    reference_rollouts: float
    """Mean number of the reference's rollouts per interval."""
    coverage: Estimate
    """Mean posterior probability that the value of a step is in its interval, given the rollouts of
    both runs."""
    holds_share: Estimate
    """Share of intervals that contain the reference's share of right rollouts."""
    width: Estimate
    """Mean width of the intervals."""


@dataclass(frozen=True, kw_only=True)
class _ComparedInterval:
    problem_id: str
    step: StepLabel
    own_counts: Counts
    reference_counts: Counts


def check_intervals(
    rows: Iterable[LabeledSolution], reference: Mapping[str, Counts], *, seed: int = 0
) -> dict[str, IntervalCheck]:
    """Check the intervals of step values, by label source and for all sources under the name `all`.

    Only prefixes with rollouts of the reference are checked.

    Args:
        rows: labelled solutions.
        reference: counts of the reference's rollouts by prefix id. The labels must not be computed
            from these rollouts.
        seed: seed of the bootstrap.
    """
    by_prefix = {
        step.prefix_id: _ComparedInterval(
            problem_id=row.problem.id,
            step=step,
            own_counts=row.value_counts(number),
            reference_counts=reference.get(step.prefix_id, Counts()),
        )
        for row in rows
        for number, step in enumerate(row.steps)
        if step.low is not None
    }
    groups = {"all": list(by_prefix.values())}
    for source in sorted({interval.step.source for interval in by_prefix.values()}):
        groups[source] = [
            interval for interval in by_prefix.values() if interval.step.source == source
        ]
    usable = {
        name: [interval for interval in group if count_trials(interval.reference_counts)]
        for name, group in groups.items()
    }
    return {
        name: _measure_coverage(group, len(groups[name]) - len(group), seed)
        for name, group in usable.items()
        if group
    }


def count_independent_rollouts(
    own: Iterable[Rollout], reference: Iterable[Rollout]
) -> dict[str, Counts]:
    """Return outcome counts of the reference's rollouts by prefix id, without shared rollouts.

    Runs with the same seed sample the same rollouts. A rollout of the reference is therefore left
    out if the other run has the same text for the same prefix, completer and index.

    Args:
        own: rollouts of the run whose labels are checked.
        reference: rollouts of the reference run.
    """
    drawn = {(r.completer, r.prefix_id, r.index, r.text) for r in own}
    tallies: dict[str, Tally[Outcome]] = {}
    for r in reference:
        if (r.completer, r.prefix_id, r.index, r.text) not in drawn:
            tallies.setdefault(r.prefix_id, Tally())[r.outcome] += 1
    return {
        prefix: Counts(**{f"num_{outcome}": tally[outcome] for outcome in Outcome})
        for prefix, tally in tallies.items()
    }


def _measure_coverage(
    group: Sequence[_ComparedInterval], num_unchecked: int, seed: int
) -> IntervalCheck:
    low = np.array([interval.step.low for interval in group], dtype=np.float64)
    high = np.array([interval.step.high for interval in group], dtype=np.float64)
    right = np.array([interval.reference_counts.num_right for interval in group], dtype=np.float64)
    trials = np.array(
        [count_trials(interval.reference_counts) for interval in group], dtype=np.float64
    )
    own_right = np.array([interval.own_counts.num_right for interval in group], dtype=np.float64)
    own_trials = np.array(
        [count_trials(interval.own_counts) for interval in group], dtype=np.float64
    )
    successes, both = right + own_right + 0.5, trials + own_trials + 1
    chance = betainc(successes, both - successes, high) - betainc(successes, both - successes, low)
    share = right / trials
    columns = [np.ones(len(group)), chance, (low <= share) & (share <= high), high - low]
    table = sum_by_problem(
        [interval.problem_id for interval in group], np.stack(columns, 1).astype(float)
    )
    weights = draw_resample_weights(len(table), seed)
    coverage, holds, width = (estimate_ratio(table[:, i], table[:, 0], weights) for i in (1, 2, 3))
    return IntervalCheck(
        num_intervals=len(group),
        num_unchecked=num_unchecked,
        reference_rollouts=float(trials.mean()),
        coverage=coverage,
        holds_share=holds,
        width=width,
    )
