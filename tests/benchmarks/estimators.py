"""Compare the labels of all estimators with their costs, on real rollouts and simulated values.

    python -m tests.benchmarks.estimators [--smoke | --quick] [--plot docs/estimators.png]

Estimators are replayed on pools, which are runs labelled with `fixed`, K=64. Rollouts are drawn
from a pool without replacement, so all estimators see the same solutions and share prefixes alike.
Settings are chosen and priors fitted on validation problems. The figures are those of test
problems, with bootstrap intervals over problems. `with_pilot` treats the test problems as one run
that begins with wide priors. Values and intervals are compared with the truth of test problems
whose prefixes had 2,048 rollouts each. The benchmark first makes the pools: 350, 250 and 24
problems with four solutions each, in two and a half hours on two cores. `--quick` makes small pools
and takes two minutes. A setting counts as good as another (`matches`) if the interval of their
difference lies above -0.03. The last line is JSON.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mclabel.core.stats.bootstrap import draw_resample_weights
from mclabel.labeling.estimators import EstimatorSettings, Knowledge, ProblemEstimator
from mclabel.labeling.estimators.bisect import BisectEstimator
from mclabel.labeling.estimators.fixed import FirstErrorEstimator, FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.trace.estimator import TraceEstimator
from mclabel.labeling.estimators.tree import TreeEstimator
from tests.benchmarks.estimators_common import (
    POSTERIORS,
    Point,
    difference,
    fit_posterior_priors,
    learned,
    load_pool,
    make_pool,
    share,
    shown_equal,
)
from tests.benchmarks.estimators_values import real_intervals, simulate_intervals, soft_values
from tests.benchmarks.figures import finish
from tests.benchmarks.simulation.measure import Measurement, SimulatedRun, measure
from tests.benchmarks.simulation.replay import Case, Replay
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

GAINS = tuple(float(f"{10 ** (-k / 8):.2g}") for k in range(0, 23))
"""Values of `min_gain`: eight per decade, from 1 to 0.0018."""
PILOT_GAINS = (0.024, 0.008, 0.004)
"""Values of `min_gain` for the run that begins with wide priors."""
TRACE = "trace, with agreement"
TRACE_SETTINGS = TraceEstimator.Settings(min_belief=0.0)
"""Settings of the estimator for solutions that correct themselves. The solutions here never do."""
CAP = 64
POOLS = {"validation": (350, CAP), "test": (250, CAP), "truth": (24, 2048)}
"""Numbers of problems, and of rollouts for each of their prefixes."""
SMOKE_POOLS = {"validation": (1, 4), "test": (2, 4), "truth": (1, 8)}
QUICK_POOLS = {"validation": (8, 16), "test": (16, 16), "truth": (2, 256)}

Key = tuple[str, str]
"""Names of an estimator and of its setting."""
Table = dict[Key, Measurement]


def main() -> None:
    parser = SizedParser(__doc__)
    parser.add_argument("--plot", type=Path, help="file for the plot of cost against quality")
    args = parser.read()
    size: BenchmarkSize = args.size
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch)
        sizes = size.pick(smoke=SMOKE_POOLS, quick=QUICK_POOLS, full=POOLS)
        pools = {
            name: load_pool([make_pool(out, name, count, rollouts)])
            for name, (count, rollouts) in sizes.items()
        }
        plot = out / "estimators.png" if size is BenchmarkSize.SMOKE else args.plot
        finish(_report(**pools, cap=sizes["test"][1], size=size, plot=plot))


def _report(
    validation: list[Case],
    test: list[Case],
    truth: list[Case],
    *,
    cap: int,
    size: BenchmarkSize,
    plot: Path | None,
) -> dict[str, Any]:
    priors = {
        name: fit_posterior_priors(validation, agreement=agreement, cap=min(cap, 16))
        for name, agreement in POSTERIORS.items()
    }
    priors[TRACE] = learned(validation, TRACE_SETTINGS)
    settings = points(priors, cap, size.pick(smoke=GAINS[4:5], quick=GAINS, full=GAINS))
    tuned = {(p.name, p.label): measure(p.make, validation) for p in settings}
    measured = {(p.name, p.label): measure(p.make, test) for p in settings}
    weights = draw_resample_weights(len(test), 0)
    if plot is not None:
        _plot(measured, weights, plot)
    curves: dict[str, dict[str, Any]] = {}
    for (name, label), measurement in measured.items():
        curves.setdefault(name, {})[label] = _figures(measurement, weights)
    best = {
        name: max((k for k in tuned if k[0] == name), key=lambda k: tuned[k].first_error_accuracy)
        for name in curves
    }
    return {
        "curves": curves,
        "most_accurate_on_validation": {name: label for name, (_, label) in best.items()},
        "matches": {
            f"fixed{k}": _find_equal_settings(tuned, measured, ("fixed", f"K={k}"), weights)
            for k in (4, 16, 64)
            if k <= cap and (k > 4 or size is BenchmarkSize.SMOKE)
        },
        "trace_less_posterior": {
            label: difference(measured[TRACE, "no rollouts"], compared, "hit", "solutions", weights)
            for (name, label), compared in measured.items()
            if name == "posterior+agreement"
        },
        **simulate_intervals(size, test, priors["posterior"]),
        "soft": soft_values(truth, priors, cap),
        "coverage_real": real_intervals(truth, priors["posterior"]),
        "with_pilot": _with_pilot(test, cap, size, measured["fixed", f"K={min(cap, 16)}"], weights),
    }


def points(priors: dict[str, Knowledge | None], cap: int, gains: Sequence[float]) -> list[Point]:
    """Return the points of the curves: every estimator at every setting."""
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
        add("tree", f"k={k}", TreeEstimator.Settings(rollouts=k, searches=0))
    for name, agreement in POSTERIORS.items():
        for gain in gains:
            add(name, f"gain={gain:g}", _posterior(cap, gain, agreement), priors[name])
    add(TRACE, "no rollouts", TRACE_SETTINGS, priors[TRACE])
    return made


def _posterior(cap: int, gain: float, agreement: bool) -> PosteriorEstimator.Settings:
    return PosteriorEstimator.Settings(
        min_belief=0.0, rollouts=cap, min_gain=gain, agreement=agreement
    )


def _figures(measurement: Measurement, weights: np.ndarray) -> dict[str, Any]:
    return {
        "tokens": round(measurement.tokens_per_solution, 1),
        "first_error": share(measurement, "hit", "solutions", weights),
        "where_wrong": share(measurement, "hit_wrong", "with_error", weights),
        "f1": round(measurement.f1, 4),
    }


def _find_equal_settings(
    tuned: Table, measured: Table, reference: Key, weights: np.ndarray
) -> dict[str, Any]:
    """Return each estimator's cheapest setting as good as the reference on validation problems.

    The table also says whether test problems confirm it.
    """
    goal = tuned[reference]
    table: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in measured):
        good = [
            key
            for key, measurement in tuned.items()
            if key[0] == name
            and measurement.first_error_accuracy >= goal.first_error_accuracy
            and measurement.first_error_accuracy_wrong >= goal.first_error_accuracy_wrong
        ]
        if good:
            key = min(good, key=lambda k: tuned[k].tokens_per_solution)
            table[name] = {
                "setting": key[1],
                **_compare_measurements(measured[key], measured[reference], weights),
            }
    return table


def _compare_measurements(
    measurement: Measurement, real: Measurement, weights: np.ndarray
) -> dict[str, Any]:
    """Return the differences of two estimators on the same problems."""
    accuracy = difference(measurement, real, "hit", "solutions", weights)
    wrong = difference(measurement, real, "hit_wrong", "with_error", weights)
    ratio = weights @ measurement.table[:, 1] / np.maximum(weights @ real.table[:, 1], 1e-9)
    low, high = np.quantile(ratio, [0.025, 0.975])
    value = measurement.tokens_per_solution / max(real.tokens_per_solution, 1e-9)
    return {
        "tokens_ratio": [round(float(n), 4) for n in (value, low, high)],
        "accuracy_less": accuracy,
        "wrong_less": wrong,
        "shown_equal": shown_equal([accuracy, wrong]),
    }


def _with_pilot(
    test: list[Case], cap: int, size: BenchmarkSize, fixed: Measurement, weights: np.ndarray
) -> dict[str, Any]:
    """Measure the test problems as one run that begins with wide priors, including its pilot."""
    figures = {}
    pilot = size.pick(smoke=4, quick=100, full=100)
    for gain in PILOT_GAINS[: size.pick(smoke=1, quick=3, full=3)]:
        run = SimulatedRun(_posterior(cap, gain, True).with_changes(pilot=pilot))

        def learn(
            case: Case, checked: ProblemEstimator, done: Replay, to: SimulatedRun = run
        ) -> None:
            to.record(case, checked, done)
            to.fit()

        measurement = measure(run.begin, test, on_done=learn, at_a_time=16)
        beliefs = [belief for belief, _ in measurement.beliefs]
        figures[f"gain={gain:g}"] = {
            **_figures(measurement, weights),
            **_compare_measurements(measurement, fixed, weights),
            "belief": round(float(np.mean(beliefs)), 4) if beliefs else None,
        }
    return figures


def _plot(measured: dict[Key, Measurement], weights: np.ndarray, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = ("fixed", "first_error", "tree", "bisect", *POSTERIORS)
    colours = ("#666666", "#b5651d", "#a6761d", "#1b9e77", "#7fb3d5", "#1f4e9c")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), dpi=120)
    titles = ("first error found", "first error found, if there is an error")
    columns = (("hit", "solutions"), ("hit_wrong", "with_error"))
    for axis, title, (top, bottom) in zip(axes, titles, columns, strict=True):
        for name, colour in zip(names, colours, strict=True):
            curve = sorted(
                (
                    max(measurement.tokens_per_solution, 1.0),
                    *share(measurement, top, bottom, weights),
                )
                for key, measurement in measured.items()
                if key[0] == name
            )
            tokens, found_share, low, high = (np.array(c) for c in zip(*curve, strict=True))
            axis.plot(tokens, found_share, "o-", ms=3.5, lw=1.5, color=colour, label=name)
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
