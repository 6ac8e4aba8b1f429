"""Values and intervals: coverage, width and bias in simulation, squared error on real rollouts."""

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
from rich.console import Console
from rich.table import Table

from mclabel.estimators import ROOT, Estimator, EstimatorSettings, Priors, RecordedRollout
from mclabel.evaluation.bootstrap import interval, resample_weights
from mclabel.records import Outcome
from mclabel.simulate.measure import RuleTally, distinct_labels, measure
from mclabel.simulate.profiles import PROFILES, resampled_cases, simulated_cases
from mclabel.simulate.replay import Case
from mclabel.stats.intervals import clopper_pearson
from tests.benchmarks.estimators_common import POSTERIORS, Point, fitted

CASES = {
    "fixed": 2700,
    "first_error": 9000,
    "bisect": 9500,
    "sequential": 2700,
    "posterior": 6000,
    "tree": 9500,
}
"""Of each profile, for 100,000 labels of each rule."""


def simulate_intervals(
    quick: bool, pool: Sequence[Case], priors: Priors, console: Console
) -> dict[str, Any]:
    """Intervals and values on simulated cases whose values are known, and where who loses."""
    kinds = _kinds(rollouts=16, most=64)
    tallies: dict[str, RuleTally] = defaultdict(RuleTally)
    means = RuleTally()
    table = Table(title="Simulated profiles", title_justify="left")
    for column in ("profile", "estimator", "tokens", "first error", "where wrong", "problems/s"):
        table.add_column(column)
    for profile in (*PROFILES, None):
        for settings in kinds:
            number = 60 if quick else CASES[settings.kind]
            cases = (
                resampled_cases(pool, number)
                if profile is None
                else simulated_cases(profile, number)
            )
            learned = priors if profile is None else None
            if settings.kind == "posterior" and profile is not None:
                train = list(simulated_cases(profile, 40 if quick else 150, seed=1))
                learned = fitted(train, agreement=False, cap=64, rounds=1)
            point = Point(name=settings.kind, label="", settings=settings, priors=learned)
            one = measure(point.make, cases, intervals=True)
            table.add_row(
                profile or "measured",
                settings.kind,
                f"{one.tokens_per_solution:,.0f}",
                f"{one.first_error_accuracy:.3f}",
                f"{one.first_error_accuracy_wrong:.3f}",
                f"{number / one.seconds:,.0f}",
            )
            for rule, tally in one.rules.items():
                _add(tallies[_rule_name(rule, settings)], tally)
            _add(means, one.means)
    console.print(table)
    coverage = {
        rule: clopper_pearson(t.covered, t.labels, level=0.98)[0] for rule, t in tallies.items()
    }
    width = {rule: t.width / t.fixed_width for rule, t in tallies.items()}
    bias = {rule: t.error / t.values if t.values else None for rule, t in tallies.items()}
    bias["mean of posterior"] = means.error / max(1, means.values)
    for rule, tally in tallies.items():
        console.print(
            f"{rule}: {tally.labels:,} labels, covered {tally.covered / tally.labels:.4f} (99%: >= "
            f"{coverage[rule]:.4f}), width {width[rule]:.3f} of Clopper-Pearson, bias {bias[rule]}"
        )
    console.print(f"bias of posterior means: {bias['mean of posterior']:+.4f}")
    return {"coverage": coverage, "width_ratio": width, "bias": bias}


def _rule_name(rule: str, settings: EstimatorSettings) -> str:
    return f"{rule} ({settings.kind})" if rule == "fixed" else rule


def _kinds(*, rollouts: int, most: int) -> list[EstimatorSettings]:
    return [
        EstimatorSettings(kind="fixed", rollouts=rollouts),
        EstimatorSettings(kind="first_error", rollouts=rollouts),
        EstimatorSettings(kind="bisect", rollouts=rollouts),
        EstimatorSettings(kind="sequential", rollouts=most),
        EstimatorSettings(kind="posterior", rollouts=most, price=1e-4, agreement=False),
        EstimatorSettings(kind="tree", rollouts=rollouts, searches=0),
    ]


def _add(total: RuleTally, part: RuleTally) -> None:
    for name in vars(part):
        setattr(total, name, getattr(total, name) + getattr(part, name))


DRAWN = 16
"""Rollouts of a prefix that the intervals on real ones are made of."""
MAX_PARTS = {"intervals": 128, "values": 8}


def real_intervals(truth: Sequence[Case], priors: Priors, console: Console) -> dict[str, Any]:
    """Coverage of real prefixes' values, with a 99% lower bound by bootstrap over problems.

    Args:
        truth: problems of which every prefix was rolled out many times. Each part of these
            rollouts in turn makes labels, whose intervals are held against the share of the rest.
        priors: of the posterior.
        console: to print to.
    """
    found = {}
    weights = resample_weights(len(truth), 0)
    by_problem = [_parts(case, DRAWN, MAX_PARTS["intervals"]) for case in truth]
    for settings in _kinds(rollouts=DRAWN, most=DRAWN):
        point = Point(name=settings.kind, label="", settings=settings, priors=priors)
        told = [measure(point.make, cases, intervals=True).rules for cases in by_problem]
        for rule in sorted({rule for one in told for rule in one}):
            tallies = [one.get(rule, RuleTally()) for one in told]
            covered, labels = np.array([(t.covered, t.labels) for t in tallies]).T
            total = RuleTally()
            for tally in tallies:
                _add(total, tally)
            shares = (weights @ covered) / np.maximum(1, weights @ labels)
            name = _rule_name(rule, settings)
            found[name] = {
                "labels": total.labels,
                "covered": total.covered / total.labels,
                "low": float(np.quantile(shares, 0.01)),
                "width_ratio": total.width / total.fixed_width,
            }
            console.print(f"real rollouts, {name}: {found[name]}")
    return found


def soft_values(
    truth: Sequence[Case], priors: dict[str, Priors], cap: int, console: Console
) -> dict[str, Any]:
    """Squared error of soft values.

    The share q of n rollouts that is taken for the truth is the value plus noise of variance
    q (1 - q) / (n - 1), estimated without bias, which is taken off.

    Args:
        truth: problems of which every prefix was rolled out many times.
        priors: of the posteriors, by name.
        cap: rollouts of a prefix that can be drawn; the others tell its value.
        console: to print to.
    """
    cases = [part for case in truth for part in _parts(case, cap, MAX_PARTS["values"])]
    trials = len(_outcomes(truth[0], ROOT)) - cap
    assert trials > 1, f"truth of {trials + cap} rollouts a prefix, {cap} of them drawn: too few"
    problems = {case.id: index for index, case in enumerate(truth)}
    weights = resample_weights(len(problems), 0)
    made: list[tuple[str, EstimatorSettings, Priors | None]] = []
    for k in [k for k in (1, 2, 4, 8, 16, 32) if k <= cap]:
        made.append((f"fixed K={k}", EstimatorSettings(kind="fixed", rollouts=k), None))
        for name, agreement in POSTERIORS.items():
            settings = EstimatorSettings(
                kind="posterior", rollouts=cap, price=1.0, every=k, agreement=agreement
            )
            made.append((f"{name} every={k}", settings, priors[name]))
    for price in (3e-3, 1e-3, 3e-4, 1e-4):
        for name, agreement in POSTERIORS.items():
            settings = EstimatorSettings(
                kind="posterior", rollouts=cap, price=price, agreement=agreement
            )
            made.append((f"{name} price={price:g}", settings, priors[name]))
    if cap >= 16:
        for width in (0.6, 0.4):
            settings = EstimatorSettings(kind="sequential", rollouts=cap, width=width)
            made.append((f"sequential width={width}", settings, None))
    found: dict[str, dict[str, Any]] = {}
    resampled: dict[str, NDArray[np.float64]] = {}
    for label, settings, learned in made:
        point = Point(name="", label="", settings=settings, priors=learned)
        errors: list[tuple[int, float, float]] = []

        def keep(case: Case, estimator: Estimator, done: Any) -> None:
            for prefix, _, estimate in distinct_labels(case, done):
                guess = estimate.mean if estimate.mean is not None else estimate.value
                q = case.values[prefix]
                if guess is not None:
                    noise = q * (1 - q) / (trials - 1)
                    row = (problems[case.id], guess - q, (guess - q) ** 2 - noise)
                    errors.append(row)  # noqa: B023

        one = measure(point.make, cases, on_done=keep)
        at, error, squared = np.array(errors).T
        count, off, square = (
            np.bincount(at.astype(int), weights=column, minlength=len(problems))
            for column in (np.ones(len(at)), error, squared)
        )
        resampled[label] = np.sqrt(np.maximum(0.0, (weights @ square) / (weights @ count)))
        found[label] = {
            "tokens": one.tokens_per_solution,
            "labels": len(at),
            "rmse": float(np.sqrt(max(0.0, squared.mean()))),
            "rmse_interval": interval(resampled[label], len(problems)),
            "bias": float(error.mean()),
            "bias_interval": interval((weights @ off) / (weights @ count), len(problems)),
        }
    for label, one_ in found.items():
        beside = f"fixed K={label.rpartition('=')[2]}"
        if " every=" in label:  # as many rollouts of the same prefixes
            ratio = interval(resampled[label] / resampled[beside], len(problems))
            one_["rmse_to_fixed"] = [one_["rmse"] / found[beside]["rmse"], *ratio]
    table_ = Table(title=f"Soft values, truth of {trials} rollouts", title_justify="left")
    for column in ("estimator", "tokens", "labels", "RMSE", "to fixed's", "bias"):
        table_.add_column(column)
    for label, one_ in sorted(found.items(), key=lambda item: item[1]["tokens"]):
        table_.add_row(
            label,
            f"{one_['tokens']:,.0f}",
            str(one_["labels"]),
            "{:.3f} [{:.3f}, {:.3f}]".format(one_["rmse"], *one_["rmse_interval"]),
            "{:.2f} [{:.2f}, {:.2f}]".format(*one_["rmse_to_fixed"])
            if "rmse_to_fixed" in one_
            else "",
            "{:+.4f} [{:+.4f}, {:+.4f}]".format(one_["bias"], *one_["bias_interval"]),
        )
    console.print(table_)
    return found


def _parts(case: Case, drawn: int, most: int) -> list[Case]:
    """The case with each so many of its rollouts in turn to draw from.

    Its values are then the shares of all the others.
    """
    outcomes = [_outcomes(case, prefix) for prefix in range(case.num_prefixes)]
    parts = min(most, min(map(len, outcomes)) // drawn)
    return [
        replace(
            case,
            draw=partial(_later, case, first, first + drawn),
            values=tuple(
                float(np.nanmean(np.delete(told, np.s_[first : first + drawn])))
                for told in outcomes
            ),
        )
        for first in range(0, parts * drawn, drawn)
    ]


def _later(case: Case, first: int, end: int, prefix: int, index: int) -> RecordedRollout:
    if first + index >= end:
        raise IndexError(f"rollout {index} of a prefix that has {end - first} to draw")
    return case.draw(prefix, first + index)


def _outcomes(case: Case, prefix: int) -> NDArray[np.float64]:
    """1 for each of the prefix's rollouts that ended right, 0 else, NaN without a verdict."""
    told = []
    with suppress(IndexError):
        for index in itertools.count():
            outcome = case.draw(prefix, index).outcome
            told.append(np.nan if outcome is Outcome.UNGRADED else outcome is Outcome.RIGHT)
    return np.array(told, dtype=np.float64)
