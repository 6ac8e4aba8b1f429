"""Every estimator's labels against their cost: on real rollouts, and on simulated values.

    python -m tests.benchmarks.estimators [--smoke | --quick] [--validation RUN]...
        [--test RUN]... [--truth RUN]... [--out FOLDER] [--plot docs/estimators.png]

Replays estimators against pools: runs labelled with `fixed`, K=64, whose rollouts are drawn
without replacement, so that all see the same solutions and share prefixes alike. Settings are
chosen and priors fitted on validation problems and reported on test problems, with bootstrap
intervals over problems. Values and intervals are held against the truth of test problems of which
every prefix was rolled out 2,048 times. Pools that are not given are made: 350, 250 and 24
problems, four solutions each, two and a half hours on two cores; `--quick` makes small ones and
takes two minutes. A ratio of tokens is null where nothing is shown to be as good: the interval of
the difference must lie above -.03. The last line is JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from mclabel.core.stats.bootstrap import resample_weights
from mclabel.labeling.estimators import EstimatorSettings, Knowledge, ProblemEstimator
from mclabel.labeling.estimators.bisect import BisectEstimator
from mclabel.labeling.estimators.fixed import FirstErrorEstimator, FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.sequential import SequentialEstimator
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.tree import TreeEstimator
from mclabel.labeling.simulation.measure import (
    COLUMNS,
    Measurement,
    SimulatedRun,
    measure,
    reliability,
)
from mclabel.labeling.simulation.replay import Case, Replay
from tests.benchmarks.estimators_common import (
    POSTERIORS,
    Point,
    difference,
    fitted,
    learned,
    load_pool,
    make_pool,
    shown_equal,
)
from tests.benchmarks.estimators_decisions import decision_cost, summary
from tests.benchmarks.estimators_free_form import free_form
from tests.benchmarks.estimators_values import (
    real_intervals,
    simulate_intervals,
    soft_values,
)
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

GAINS = tuple(float(f"{10 ** (-k / 8):.2g}") for k in range(16, 39))
"""Least gains a token: eight steps a decade, from 0.01 to 0.00002."""
TRACE = "trace, with agreement"
TRACE_FIT_GAIN = 5e-4
CAP = 64
POOLS = {"validation": (350, CAP), "test": (250, CAP), "truth": (24, 2048)}
"""Problems, and rollouts of each of their prefixes."""
SMOKE_POOLS = {"validation": (2, 16), "test": (3, 16), "truth": (2, 32)}
QUICK_POOLS = {"validation": (8, 16), "test": (16, 16), "truth": (2, 256)}


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--validation", action="append", default=[], help="run(s) to tune on")
    parser.add_argument("--test", action="append", default=[], help="run(s) to report on")
    parser.add_argument("--fit", action="append", default=[], help="more runs to fit priors on")
    parser.add_argument(
        "--truth", action="append", default=[], help="run(s) that the values are taken from"
    )
    parser.add_argument("--cap", type=int, help="rollouts of a prefix that the pools have")
    parser.add_argument("--out", type=Path, help="keep pools here that have to be made")
    parser.add_argument("--plot", type=Path, help="write the plot of cost against quality here")
    args = parser.read()
    console = Console(emoji=False, width=140)
    with tempfile.TemporaryDirectory() as scratch:
        out = args.out or Path(scratch)
        sizes = args.size.pick(smoke=SMOKE_POOLS, quick=QUICK_POOLS, full=POOLS)
        if args.size is BenchmarkSize.SMOKE:
            args.plot = Path(scratch) / "estimators.png"
        cap = args.cap or (CAP if args.validation and args.test else sizes["test"][1])
        for name, (count, rollouts) in sizes.items():
            if not getattr(args, name):
                setattr(args, name, [make_pool(out, name, count, rollouts, console)])
        figures = _report(load_pool(args.validation), load_pool(args.test), cap, args, console)
    print(json.dumps(figures))


def points(
    priors: dict[str, Knowledge | None], cap: int, gains: Sequence[float] = GAINS
) -> list[Point]:
    """The curves: every estimator at every setting."""
    sizes = [k for k in (1, 2, 4, 8, 16, 32, 64) if k <= cap]
    made = []

    def add(
        name: str, label: str, settings: EstimatorSettings, learned: Knowledge | None = None
    ) -> None:
        made.append(Point(name=name, label=label, knowledge=learned, settings=settings))

    for k in sizes:
        add("fixed", f"K={k}", FixedEstimator.Settings(rollouts=k))
        add("first_error", f"K={k}", FirstErrorEstimator.Settings(rollouts=k))
        add("bisect", f"K={k}", BisectEstimator.Settings(rollouts=k, batch=min(k, 4)))
        add("bisect, batch 1", f"K={k}", BisectEstimator.Settings(rollouts=k, batch=1))
        add("tree", f"k={k}", TreeEstimator.Settings(rollouts=k, searches=0))
        if k >= 8:
            add("sequential", f"cap={k}", SequentialEstimator.Settings(rollouts=k, width=0.3))
    for name, agreement in POSTERIORS.items():
        for batch, gain in itertools.product((4, 1), gains):
            settings = PosteriorEstimator.Settings(
                min_belief=0.0,
                rollouts=cap,
                min_gain_per_token=gain,
                batch=batch,
                agreement=agreement,
            )
            shown = name if batch == 4 else f"{name}, batch {batch}"
            add(shown, f"gain={gain:g}", settings, priors[name])
    for gain in gains[::4]:
        add(TRACE, f"gain={gain:g}", _trace(cap, gain), priors[TRACE])
    return made


def _trace(cap: int, gain: float) -> EstimatorSettings:
    """Settings of the estimator for solutions that correct themselves, which these do not."""
    return TraceEstimator.Settings(min_belief=0.0, rollouts=cap, min_gain_per_token=gain)


def _report(
    validation: list[Case], test: list[Case], cap: int, args: argparse.Namespace, console: Console
) -> dict[str, Any]:
    solutions = sum(len(case.paths) for case in test)
    console.print(
        f"validation: {len(validation)} problems; test: {len(test)}, {solutions} solutions"
    )
    priors = {
        name: fitted([*validation, *load_pool(args.fit)], agreement=agreement, cap=min(cap, 16))
        for name, agreement in POSTERIORS.items()
    }
    priors[TRACE] = learned(validation, _trace(min(cap, 16), TRACE_FIT_GAIN))
    settings = points(priors, cap, GAINS[4::4] if args.size is BenchmarkSize.SMOKE else GAINS)
    tuned = {(p.name, p.label): measure(p.make, validation) for p in settings}
    found = {(p.name, p.label): measure(p.make, test) for p in settings}
    weights = resample_weights(len(test), 0)
    console.print(_curve_table(found, weights))
    references = [k for k in (16, 64) if k <= cap]
    matches = {
        f"fixed{k}": _matched(tuned, found, ("fixed", f"K={k}"), weights) for k in references
    }
    for name, table in matches.items():
        console.print(_match_table(name, table))
    best = _best(tuned, found)
    console.print("chosen on validation, the most accurate of each:", best)
    calibration, causes = _posterior_report(found, best, test, console)
    simulated = simulate_intervals(args.size, test, priors["posterior"], console)
    truth = load_pool(args.truth)
    soft = soft_values(truth, priors, cap, console)
    covered = real_intervals(truth, priors["posterior"], console)
    pilot, free = {}, {}
    if args.size is not BenchmarkSize.QUICK:
        pilot = _with_pilot(test, cap, args.size, console)
        free = free_form(args.validation, args.test, cap=cap, console=console)
    if args.plot:
        _plot(found, weights, args.plot)
    decisions = decision_cost(args.size, console)
    return {
        "estimators": {
            name: {key: value for key, value in one.items() if key != "key"}
            for name, one in best.items()
        },
        "best": max(best, key=lambda name: best[name]["first_error_accuracy"]),
        "tokens_ratio_to_fixed16": _cheapest(matches.get("fixed16"), agreement=False),
        "tokens_ratio_to_fixed64": _cheapest(matches.get("fixed64"), agreement=False),
        "tokens_ratio_to_fixed16_agreement": _cheapest(matches.get("fixed16"), agreement=True),
        "tokens_ratio_to_fixed64_agreement": _cheapest(matches.get("fixed64"), agreement=True),
        "matches": matches,
        **simulated,
        "soft": soft,
        "coverage_real": covered,
        "calibration": calibration,
        "causes": causes,
        "with_pilot": pilot,
        "free_form": free,
        **summary(decisions),
    }


Key = tuple[str, str]


def _curve_table(found: dict[Key, Measurement], weights: np.ndarray) -> Table:
    table = Table(title="Cost and quality on test [95% interval]", title_justify="left")
    for column in ("estimator", "setting", "tokens", "first error", "where wrong", "F1"):
        table.add_column(column, no_wrap=True)
    for (name, label), one in found.items():
        low, high = _interval(one, "hit", "solutions", weights)
        table.add_row(
            name,
            label,
            f"{one.tokens_per_solution:,.1f}",
            f"{one.first_error_accuracy:.3f} [{low:.3f}, {high:.3f}]",
            f"{one.first_error_accuracy_wrong:.3f}",
            f"{one.f1:.3f}",
        )
    return table


def _interval(one: Measurement, top: str, bottom: str, weights: np.ndarray) -> tuple[float, float]:
    a, b = (weights @ one.table[:, COLUMNS.index(name)] for name in (top, bottom))
    low, high = np.quantile(a / np.maximum(b, 1e-9), [0.025, 0.975])
    return float(low), float(high)


def _matched(
    tuned: dict[Key, Measurement],
    found: dict[Key, Measurement],
    reference: Key,
    weights: np.ndarray,
) -> dict[str, Any]:
    """The cheapest setting of each estimator that is as good as the reference on validation, and
    whether test problems show that it is.
    """
    goal, real = tuned[reference], found[reference]
    table: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in found):
        good = [
            key
            for key, one in tuned.items()
            if key[0] == name
            and one.first_error_accuracy >= goal.first_error_accuracy
            and one.first_error_accuracy_wrong >= goal.first_error_accuracy_wrong
        ]
        if not good:
            continue
        key = min(good, key=lambda k: tuned[k].tokens_per_solution)
        one = found[key]
        accuracy = difference(one, real, "hit", "solutions", weights)
        wrong = difference(one, real, "hit_wrong", "with_error", weights)
        ratio = weights @ one.table[:, 1] / (weights @ real.table[:, 1])
        low, high = np.quantile(ratio, [0.025, 0.975])
        table[name] = {
            "setting": key[1],
            "tokens": one.tokens_per_solution,
            "ratio": one.tokens_per_solution / real.tokens_per_solution,
            "ratio_interval": [float(low), float(high)],
            "accuracy_difference": accuracy,
            "wrong_difference": wrong,
            "shown_equal": shown_equal([accuracy, wrong]),
        }
    return table


def _match_table(name: str, matches: dict[str, Any]) -> Table:
    table = Table(title=f"As good as {name} on validation; figures on test", title_justify="left")
    for column in (
        "estimator",
        "setting",
        "tokens",
        "ratio",
        "accuracy less",
        "wrong less",
        "equal",
    ):
        table.add_column(column, no_wrap=True)
    for estimator, one in matches.items():
        low, high = one["ratio_interval"]
        table.add_row(
            estimator,
            one["setting"],
            f"{one['tokens']:,.1f}",
            f"{one['ratio']:.2%} [{low:.2%}, {high:.2%}]",
            "{:+.3f} [{:+.3f}, {:+.3f}]".format(*one["accuracy_difference"]),
            "{:+.3f} [{:+.3f}, {:+.3f}]".format(*one["wrong_difference"]),
            "shown" if one["shown_equal"] else "not shown",
        )
    return table


def _cheapest(matches: dict[str, Any] | None, *, agreement: bool) -> float | None:
    """The smallest ratio of those shown to be equal, None without any; without agreement, of those
    that use rollouts and outcomes alone.
    """
    ratios = [
        one["ratio"]
        for name, one in (matches or {}).items()
        if name != "fixed" and one["shown_equal"] and ("agreement" in name) == agreement
    ]
    return min(ratios, default=None)


def _best(tuned: dict[Key, Measurement], found: dict[Key, Measurement]) -> dict[str, Any]:
    """Each estimator where it is the most accurate on validation."""
    best = {}
    for name in dict.fromkeys(name for name, _ in found):
        key = max((k for k in tuned if k[0] == name), key=lambda k: tuned[k].first_error_accuracy)
        one = found[key]
        best[name] = {
            "key": key,
            "setting": key[1],
            "tokens_per_solution": one.tokens_per_solution,
            "first_error_accuracy": one.first_error_accuracy,
            "first_error_accuracy_wrong": one.first_error_accuracy_wrong,
            "f1": one.f1,
        }
    return best


def _posterior_report(
    found: dict[Key, Measurement], best: dict[str, Any], test: list[Case], console: Console
) -> tuple[dict[str, Any], dict[str, Any]]:
    calibration: dict[str, Any] = {}
    causes: dict[str, Any] = {}
    for name in ("fixed", "bisect", *POSTERIORS):
        one = found[best[name]["key"]]
        causes[name] = dict(one.causes)
        console.print(f"{name} {best[name]['setting']}: errors by cause {dict(one.causes)}")
        if one.beliefs:
            for gain in ("gain=0.0032", "gain=0.001", "gain=0.00032", best[name]["setting"]):
                bins = reliability(found[name, gain].beliefs)
                calibration[f"{name} {gain}"] = bins
                shown = ", ".join(f"{a:.2f}: {b:.2f} ({n})" for a, b, n in bins)
                console.print(f"  belief at {gain}: was right (solutions): {shown}")
        for group in sorted(set(one.groups)):
            rows = one.table[[g == group for g in one.groups]].sum(0)
            console.print(f"  {group}: {rows[2] / rows[0]:.3f} of {rows[0]:.0f}")
    return calibration, causes


def _with_pilot(
    test: list[Case], cap: int, size: BenchmarkSize, console: Console
) -> dict[str, Any]:
    """The test problems as one run that begins with wide priors, its pilot included."""
    found = {}
    pilot = size.pick(smoke=4, quick=100, full=100)
    for name, agreement in POSTERIORS.items():
        for gain in (3e-3, 1e-3, 3e-4):
            run = SimulatedRun(
                PosteriorEstimator.Settings(
                    min_belief=0.0,
                    rollouts=cap,
                    min_gain_per_token=gain,
                    agreement=agreement,
                    pilot=pilot,
                )
            )

            def learn(
                case: Case, checked: ProblemEstimator, done: Replay, to: SimulatedRun = run
            ) -> None:
                to.record(case, checked, done)
                to.fit()

            one = measure(run.begin, test, on_done=learn, at_a_time=16)
            first = int(np.searchsorted(np.cumsum(one.table[:, 0]), pilot)) + 1
            rest = one.table[first:].sum(0)
            found[f"{name} gain={gain:g}"] = {
                "tokens": one.tokens_per_solution,
                "accuracy": one.first_error_accuracy,
                "wrong": one.first_error_accuracy_wrong,
                "tokens_after_pilot": float(rest[1] / max(rest[0], 1)),
                "accuracy_after_pilot": float(rest[2] / max(rest[0], 1)),
            }
            console.print(
                f"one run with its pilot, {name}, gain {gain:g}:",
                found[f"{name} gain={gain:g}"],
            )
    return found


def _plot(found: dict[Key, Measurement], weights: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ("fixed", "first_error", "sequential", "tree", "bisect", *POSTERIORS)
    colours = ("#666666", "#b5651d", "#8c6bb1", "#a6761d", "#1b9e77", "#7fb3d5", "#1f4e9c")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), dpi=120)
    titles = ("first error found", "first error found, where there is one")
    columns = (("hit", "solutions"), ("hit_wrong", "with_error"))
    for axis, title, (top, bottom) in zip(axes, titles, columns, strict=True):
        for name, colour in zip(names, colours, strict=True):
            curve = sorted(
                (
                    max(one.tokens_per_solution, 1.0),
                    one.ratio(top, bottom),
                    *_interval(one, top, bottom, weights),
                )
                for key, one in found.items()
                if key[0] == name
            )
            tokens, share, low, high = (np.array(c) for c in zip(*curve, strict=True))
            axis.plot(tokens, share, "o-", ms=3.5, lw=1.5, color=colour, label=name)
            if name in ("fixed", "posterior+agreement"):
                axis.fill_between(tokens, low, high, color=colour, alpha=0.12, lw=0)
        axis.set_xscale("log")
        axis.set_xlabel("rollout tokens a solution (1: none)")
        axis.set_title(title, fontsize=10)
        axis.grid(alpha=0.25)
    axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
