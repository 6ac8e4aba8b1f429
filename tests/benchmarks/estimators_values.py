"""Coverage, width and bias of intervals in simulation; squared error of values on real rollouts."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.core.stats.bootstrap import compute_bootstrap_interval, draw_resample_weights
from mclabel.core.stats.intervals import clopper_pearson
from mclabel.labeling.estimators import (
    ROOT,
    EstimatorSettings,
    Knowledge,
    Probe,
    ProblemEstimator,
    RecordedRollout,
)
from mclabel.labeling.estimators.bisect import BisectEstimator
from mclabel.labeling.estimators.fixed import FirstErrorEstimator, FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.tree import TreeEstimator
from tests.benchmarks.estimators_common import POSTERIORS, Point, fit_posterior_priors
from tests.benchmarks.simulation.measure import SourceTally, distinct_labels, measure
from tests.benchmarks.simulation.profiles import PROFILES, resampled_cases, simulated_cases
from tests.benchmarks.simulation.replay import Case
from tests.benchmarks.sizes import BenchmarkSize

CASES = {
    "fixed": 2700,
    "first_error": 9000,
    "bisect": 9500,
    "posterior": 6000,
    "tree": 9500,
}
"""Numbers of cases of each profile that give 100,000 labels of each source."""


def simulate_intervals(
    size: BenchmarkSize, pool: Sequence[Case], priors: Knowledge | None
) -> dict[str, Any]:
    """Measure intervals and values on simulated cases whose values are known.

    `coverage` has a 99% lower bound. `width_ratio` is relative to the interval of Clopper and
    Pearson.
    """
    kinds = _list_settings(rollouts=16, most=64)
    num_fitted = size.pick(smoke=4, quick=40, full=150)
    tallies: dict[str, SourceTally] = defaultdict(SourceTally)
    means = SourceTally()
    for profile in size.pick(smoke=(None,), quick=(*PROFILES, None), full=(*PROFILES, None)):
        for settings in kinds:
            number = size.pick(smoke=4, quick=60, full=CASES[settings.kind])
            cases = (
                resampled_cases(pool, number)
                if profile is None
                else simulated_cases(profile, number)
            )
            learned = priors if profile is None else None
            if isinstance(settings, PosteriorEstimator.Settings) and profile is not None:
                train = list(simulated_cases(profile, num_fitted, seed=1))
                learned = fit_posterior_priors(train, agreement=False, cap=64, rounds=1)
            point = Point(name=settings.kind, label="", settings=settings, knowledge=learned)
            measurement = measure(point.make, cases, intervals=True)
            for source, tally in measurement.sources.items():
                _add(tallies[_source_name(source, settings)], tally)
            _add(means, measurement.means)
    coverage = {
        source: {
            "labels": t.labels,
            "covered": t.covered / t.labels,
            "low": clopper_pearson(t.covered, t.labels, level=0.98)[0],
        }
        for source, t in tallies.items()
    }
    width = {source: t.width / t.fixed_width for source, t in tallies.items()}
    bias = {source: t.error / t.values if t.values else None for source, t in tallies.items()}
    bias["mean of posterior"] = means.error / max(1, means.values)
    return {"coverage": coverage, "width_ratio": width, "bias": bias}


def _source_name(source: str, settings: EstimatorSettings) -> str:
    return f"{source} ({settings.kind})" if source == "fixed" else source


def _list_settings(*, rollouts: int, most: int) -> list[EstimatorSettings]:
    return [
        FixedEstimator.Settings(rollouts=rollouts),
        FirstErrorEstimator.Settings(rollouts=rollouts),
        BisectEstimator.Settings(rollouts=rollouts),
        PosteriorEstimator.Settings(min_belief=0.0, rollouts=most, min_gain=0.008, agreement=False),
        TreeEstimator.Settings(rollouts=rollouts, searches=0),
    ]


def _add(total: SourceTally, part: SourceTally) -> None:
    for name in vars(part):
        setattr(total, name, getattr(total, name) + getattr(part, name))


DRAWN = 16
"""Number of rollouts of a prefix for an interval on real rollouts."""
MAX_PARTS = {"intervals": 128, "values": 8}


def real_intervals(truth: Sequence[Case], priors: Knowledge | None) -> dict[str, Any]:
    """Measure the interval coverage of real prefixes' values, with a 99% lower bound.

    The bound comes from a bootstrap over problems.

    Args:
        truth: problems whose prefixes all have many rollouts. Each part of these rollouts makes
            labels in turn. The labels' intervals are compared with the share of right rollouts
            among the others.
        priors: priors of the posterior.
    """
    figures = {}
    weights = draw_resample_weights(len(truth), 0)
    drawn = min(DRAWN, len(_outcomes(truth[0], ROOT)) // 2)
    by_problem = [_parts(case, drawn, MAX_PARTS["intervals"]) for case in truth]
    for settings in _list_settings(rollouts=drawn, most=drawn):
        point = Point(name=settings.kind, label="", settings=settings, knowledge=priors)
        found_sources = [measure(point.make, cases, intervals=True).sources for cases in by_problem]
        for source in sorted({source for sources in found_sources for source in sources}):
            tallies = [sources.get(source, SourceTally()) for sources in found_sources]
            covered, labels = np.array([(t.covered, t.labels) for t in tallies]).T
            total = SourceTally()
            for tally in tallies:
                _add(total, tally)
            shares = (weights @ covered) / np.maximum(1, weights @ labels)
            name = _source_name(source, settings)
            figures[name] = {
                "labels": total.labels,
                "covered": total.covered / total.labels,
                "low": float(np.quantile(shares, 0.01)),
                "width_ratio": total.width / total.fixed_width,
            }
    return figures


def soft_values(
    truth: Sequence[Case], priors: dict[str, Knowledge | None], cap: int
) -> dict[str, Any]:
    """Measure the squared error of soft values.

    The share q of right rollouts among n rollouts stands for the truth. It is the true value plus
    noise of variance q (1 - q) / (n - 1). This unbiased estimate of the noise is subtracted.

    Args:
        truth: problems whose prefixes all have many rollouts.
        priors: priors of the posteriors, by name.
        cap: number of rollouts of a prefix that estimators can draw. The share of right rollouts
            among the others is the prefix's value.
    """
    cases = [part for case in truth for part in _parts(case, cap, MAX_PARTS["values"])]
    trials = len(_outcomes(truth[0], ROOT)) - cap
    assert trials > 1, f"{trials + cap} rollouts per prefix: must be at least {cap + 2}"
    problems = {case.id: index for index, case in enumerate(truth)}
    weights = draw_resample_weights(len(problems), 0)
    made: list[tuple[str, EstimatorSettings, Knowledge | None]] = []
    for k in [k for k in (1, 2, 4, 8, 16, 32) if k <= cap]:
        made.append((f"fixed K={k}", FixedEstimator.Settings(rollouts=k), None))
        for name, agreement in POSTERIORS.items():
            settings = PosteriorEstimator.Settings(
                min_belief=0.0, rollouts=cap, min_gain=80.0, every=k, agreement=agreement
            )
            made.append((f"{name} every={k}", settings, priors[name]))
    figures_by_label: dict[str, dict[str, Any]] = {}
    resampled: dict[str, NDArray[np.float64]] = {}
    for label, chosen, learned in made:
        point = Point(name="", label="", settings=chosen, knowledge=learned)
        errors: list[tuple[int, float, float]] = []

        def keep(case: Case, checked: ProblemEstimator, done: Any) -> None:
            for prefix, _, estimate in distinct_labels(case, done):
                guess = estimate.mean if estimate.mean is not None else estimate.value
                q = case.values[prefix]
                if guess is not None:
                    noise = q * (1 - q) / (trials - 1)
                    row = (problems[case.id], guess - q, (guess - q) ** 2 - noise)
                    errors.append(row)  # noqa: B023

        measurement = measure(point.make, cases, on_done=keep)
        at, error, squared = np.array(errors).T
        count, off, square = (
            np.bincount(at.astype(int), weights=column, minlength=len(problems))
            for column in (np.ones(len(at)), error, squared)
        )
        resampled[label] = np.sqrt(np.maximum(0.0, (weights @ square) / (weights @ count)))
        figures_by_label[label] = {
            "tokens": measurement.tokens_per_solution,
            "labels": len(at),
            "rmse": float(np.sqrt(max(0.0, squared.mean()))),
            "rmse_interval": compute_bootstrap_interval(resampled[label], len(problems)),
            "bias": float(error.mean()),
            "bias_interval": compute_bootstrap_interval(
                (weights @ off) / (weights @ count), len(problems)
            ),
        }
    for label, figures in figures_by_label.items():
        beside = f"fixed K={label.rpartition('=')[2]}"
        if " every=" in label:  # fixed K has as many rollouts of the same prefixes
            ratio = compute_bootstrap_interval(resampled[label] / resampled[beside], len(problems))
            figures["rmse_to_fixed"] = [figures["rmse"] / figures_by_label[beside]["rmse"], *ratio]
    return figures_by_label


def _parts(case: Case, drawn: int, most: int) -> list[Case]:
    """Split a case into cases that can draw from disjoint parts of its rollouts.

    A part has `drawn` rollouts of each prefix. The values of its case are the shares of right
    rollouts among all others.
    """
    outcomes = [_outcomes(case, prefix) for prefix in range(case.num_prefixes)]
    parts = min(most, min(map(len, outcomes)) // drawn)
    return [
        replace(
            case,
            draw=partial(_draw_later_rollout, case, first, first + drawn),
            values=tuple(
                float(np.nanmean(np.delete(ends, np.s_[first : first + drawn])))
                for ends in outcomes
            ),
        )
        for first in range(0, parts * drawn, drawn)
    ]


def _draw_later_rollout(
    case: Case, first: int, end: int, probe: Probe, index: int
) -> RecordedRollout:
    if first + index >= end:
        raise IndexError(f"rollout {index}: must be below {end - first}, the number of rollouts")
    return case.draw(probe, first + index)


def _outcomes(case: Case, prefix: int) -> NDArray[np.float64]:
    """Return an array over a prefix's rollouts: 1 for right, 0 for wrong, NaN without a verdict."""
    ends = []
    with suppress(IndexError):
        for index in itertools.count():
            outcome = case.draw(Probe(prefix), index).outcome
            ends.append(np.nan if outcome is Outcome.UNGRADED else outcome is Outcome.RIGHT)
    return np.array(ends, dtype=np.float64)
