"""Values and intervals: coverage, width and bias in simulation, squared error on real rollouts."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.stats import binom

from mclabel.estimators import Estimator, EstimatorSettings, Priors
from mclabel.intervals import clopper_pearson
from mclabel.records import Outcome
from mclabel.simulate.measure import RuleTally, distinct_labels, measure
from mclabel.simulate.profiles import PROFILES, resampled_cases, simulated_cases
from mclabel.simulate.replay import Case
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


def real_intervals(
    pool: Sequence[Case], priors: Priors, cap: int, console: Console
) -> dict[str, Any]:
    """Coverage of real prefixes' values by intervals from a quarter of their rollouts.

    The others say where a value lies, but not exactly: what is told is the chance that it lies in
    the interval given theirs, under the distribution of values that makes those of the rule's
    labels likeliest.
    """
    drawn = cap // 4
    cases = [_held_out(case, drawn, cap) for case in pool]
    trials = cap - drawn
    rows: dict[str, list[tuple[float | None, ...]]] = defaultdict(list)
    for settings in _kinds(rollouts=drawn, most=drawn):
        point = Point(name=settings.kind, label="", settings=settings, priors=priors)

        def keep(case: Case, estimator: Estimator, done: Any) -> None:
            for prefix, rule, estimate in distinct_labels(case, done):
                if math.isnan(case.values[prefix]) or estimate.low is None:
                    continue
                counts = done.counts[prefix]
                fixed = clopper_pearson(counts.num_right, counts.num_rollouts)
                name = _rule_name(rule, settings)  # noqa: B023
                held = case.values[prefix] * trials
                rows[name].append((held, estimate.low, estimate.high, *fixed))

        measure(point.make, cases, on_done=keep)
    found = {}
    for rule, labels in rows.items():
        held, low, high, fixed_low, fixed_high = np.array(labels).T
        chances = _value_chances(held.round().astype(int), trials)[held.round().astype(int)]
        inside = (low[:, None] <= _VALUES) & (high[:, None] >= _VALUES)
        found[rule] = {
            "labels": len(labels),
            "covered": float((chances * inside).sum(1).mean()),
            "width_ratio": float((high - low).mean() / (fixed_high - fixed_low).mean()),
        }
        console.print(f"real rollouts, {rule}: {found[rule]}")
    return found


_VALUES = np.sin(np.linspace(0, np.pi / 2, 181)) ** 2


def _value_chances(right: NDArray[np.int64], trials: int) -> NDArray[np.float64]:
    """[trials + 1, grid]: where the value lies, by how many of the held-out rollouts were right.

    By the distribution of values that makes all of them likeliest (Robbins' empirical Bayes).
    """
    ways = binom.pmf(np.arange(trials + 1)[:, None], trials, _VALUES)
    seen = np.bincount(right, minlength=trials + 1) / len(right)
    prior = np.full(len(_VALUES), 1 / len(_VALUES))
    for _ in range(500):
        joint = ways * prior
        prior = seen @ (joint / joint.sum(1, keepdims=True))
    joint = ways * prior
    return np.asarray(joint / joint.sum(1, keepdims=True))


def soft_values(
    cases: Sequence[Case],
    trials: int,
    priors: dict[str, Priors],
    cap: int,
    console: Console,
) -> dict[str, Any]:
    """Squared error of soft values.

    The share q of n rollouts that is taken for the truth is the value plus noise of variance
    q (1 - q) / (n - 1), estimated without bias, which is taken off.

    Args:
        cases: with values from other rollouts than those drawn; NaN where they are unknown.
        trials: n.
        priors: of the posteriors, by name.
        cap: rollouts of a prefix that can be drawn.
        console: to print to.
    """
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
    found = {}
    for label, settings, learned in made:
        point = Point(name="", label="", settings=settings, priors=learned)
        errors: list[tuple[float, float]] = []

        def keep(case: Case, estimator: Estimator, done: Any) -> None:
            seen: set[int] = set()
            for path, judgement in zip(case.paths, done.judgements, strict=True):
                pairs = zip(path.prefixes, judgement.estimates, strict=False)
                for prefix, estimate in pairs:
                    guess = estimate.mean if estimate.mean is not None else estimate.value
                    q = case.values[prefix]
                    if guess is not None and prefix not in seen and q == q:
                        seen.add(prefix)
                        noise = q * (1 - q) / (trials - 1)
                        errors.append((guess - q, (guess - q) ** 2 - noise))  # noqa: B023

        one = measure(point.make, cases, on_done=keep)
        table = np.array(errors)
        found[label] = {
            "tokens": one.tokens_per_solution,
            "prefixes": len(table),
            "rmse": float(np.sqrt(max(0.0, table[:, 1].mean()))),
            "bias": float(table[:, 0].mean()),
            "bias_error": float(table[:, 0].std() / np.sqrt(len(table))),
        }
    table_ = Table(title=f"Soft values, truth of {trials} rollouts", title_justify="left")
    for column in ("estimator", "tokens", "prefixes", "RMSE", "bias"):
        table_.add_column(column)
    for label, one_ in sorted(found.items(), key=lambda item: item[1]["tokens"]):
        table_.add_row(
            label,
            f"{one_['tokens']:,.0f}",
            str(one_["prefixes"]),
            f"{one_['rmse']:.3f}",
            f"{one_['bias']:+.4f} ±{one_['bias_error']:.4f}",
        )
    console.print(table_)
    return found


def halves(cases: Sequence[Case], cap: int) -> list[Case]:
    """Cases whose values are the shares of the second half of each prefix's rollouts."""
    return [_held_out(case, cap // 2, cap) for case in cases]


def _held_out(case: Case, drawn: int, cap: int) -> Case:
    """The case, its values the shares of the rollouts from `drawn` on; NaN where there are none."""
    values = []
    for prefix in range(case.num_prefixes):
        try:
            told = [case.draw(prefix, i) for i in range(drawn, cap)]
        except IndexError:
            told = []
        right = sum(one.outcome is Outcome.RIGHT for one in told)
        values.append(right / len(told) if told else float("nan"))
    return replace(case, values=tuple(values))
