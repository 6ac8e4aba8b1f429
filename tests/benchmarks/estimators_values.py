"""Values and intervals: coverage, width and bias in simulation, squared error on real rollouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mclabel.estimators import Estimator, EstimatorSettings, Priors
from mclabel.intervals import clopper_pearson
from mclabel.records import Outcome
from mclabel.simulate.measure import RuleTally, measure
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
    for profile in (*PROFILES, "measured"):
        for settings in kinds:
            number = 60 if quick else CASES[settings.kind]
            cases = (
                resampled_cases(pool, number)
                if profile == "measured"
                else simulated_cases(profile, number)
            )
            learned = priors if profile == "measured" else None
            if settings.kind == "posterior" and learned is None:
                train = list(simulated_cases(profile, 40 if quick else 150, seed=1))
                learned = fitted(train, agreement=False, cap=64, rounds=1)
            point = Point(name=settings.kind, label="", settings=settings, priors=learned)
            one = measure(point.make, cases, intervals=True)
            table.add_row(
                profile,
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
    pools: Sequence[Sequence[Case]], priors: Priors, cap: int, console: Console
) -> dict[str, Any]:
    """Coverage of true values, as far as known, by intervals from a part of real rollouts.

    Args:
        pools: the same cases, their rollouts drawn in another order each time.
        priors: of `posterior`.
        cap: rollouts of a prefix that the pools have.
        console: to print to.
    """
    tallies: dict[str, RuleTally] = defaultdict(RuleTally)
    for settings in _kinds(rollouts=min(16, cap), most=cap):
        point = Point(name=settings.kind, label="", settings=settings, priors=priors)
        for cases in pools:
            one = measure(point.make, cases, intervals=True)
            for rule, tally in one.rules.items():
                _add(tallies[_rule_name(rule, settings)], tally)
    for rule, tally in tallies.items():
        console.print(
            f"real rollouts, {rule}: {tally.labels:,} labels, covered "
            f"{tally.covered / tally.labels:.4f}, width {tally.width / tally.fixed_width:.3f}"
        )
    return {
        rule: {"labels": t.labels, "covered": t.covered / t.labels} for rule, t in tallies.items()
    }


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
    return [_half(case, cap // 2) for case in cases]


def _half(case: Case, half: int) -> Case:
    values = []
    for prefix in range(case.num_prefixes):
        try:
            told = [case.draw(prefix, half + i) for i in range(half)]
        except IndexError:
            told = []
        right = sum(one.outcome is Outcome.RIGHT for one in told)
        values.append(right / half if told else float("nan"))
    return replace(case, values=tuple(values))
