"""The report's plots of labelling runs, each with its numbers as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

from mclabel.evaluate.labels.quality import LabelQuality
from mclabel.evaluate.labels.show import QUALITY_ROWS, SharePoint, reliability_plot, share_points
from mclabel.report.page.facts import Floats, RunFacts
from mclabel.report.page.html import Html, figure, ranged, table
from mclabel.show.figures import WIDTH, Plot, Series, row_height

NUM_BINS = 10


def quality_plot(groups: Mapping[str, LabelQuality], identity: str, numbers: Html) -> Html:
    """Label quality with intervals, a colour a run."""
    titles = [title.strip() for title in QUALITY_ROWS]
    series = []
    for hue, (name, quality) in enumerate(groups.items()):
        beside = (hue - (len(groups) - 1) / 2) * 0.6 / len(groups)
        found = [getattr(quality, key) for key in QUALITY_ROWS.values()]
        series.append(
            Series(
                name=name,
                x=[one.value for one in found],
                y=[place + beside for place in range(len(found))],
                low=[one.low for one in found],
                high=[one.high for one in found],
                kind="points",
                hue=hue,
            )
        )
    plot = Plot(
        title="Labels against exact truth",
        x_label="share",
        series=series,
        x_range=(0, 1.02),
        rows=titles,
        size=(WIDTH, row_height(len(titles), len(groups))),
    )
    return figure(identity, plot, numbers, "95% intervals by bootstrap over problems.")


def value_plot(runs: Sequence[RunFacts]) -> Html | None:
    """How values are distributed; of one run with truth, of sound and of wrong steps."""
    parts: list[tuple[str, Floats]] = []
    for run in runs:
        steps, many = run.steps, len(runs) > 1
        known = ~np.isnan(steps.value)
        if not many and not np.isnan(steps.sound[known]).any() and known.any():
            parts += [
                (name, steps.value[known & (steps.sound == flag)])
                for name, flag in (("sound in truth", 1.0), ("wrong in truth", 0.0))
            ]
        elif known.any():
            parts.append((run.name, steps.value[known]))
    if not parts:
        return None
    edges = np.linspace(0, 1, NUM_BINS + 1)
    total = sum(len(values) for _, values in parts) if len(runs) == 1 else None
    shares = {
        name: np.histogram(values, edges)[0] / (total or max(1, len(values)))
        for name, values in parts
    }
    bins = [f"{a:.1f} to {b:.1f}" for a, b in pairwise(edges)]
    centres = (edges[:-1] + edges[1:]) / 2
    plot = Plot(
        title="Distribution",
        x_label="value",
        y_label="share of steps",
        series=[
            Series(name=name, x=centres, y=column, kind="bars", hue=hue)
            for hue, (name, column) in enumerate(shares.items())
        ],
        is_stacked=len(runs) == 1,
        ticks={float(edge): f"{edge:.1f}" for edge in edges},
    )
    rows = [[b, *(f"{c[i]:.3f}" for c in shares.values())] for i, b in enumerate(bins)]
    numbers = table(["value", *shares], rows, caption="Share of steps by value")
    return figure(
        "values",
        plot,
        numbers,
        "Last steps, whose label is the outcome, are left out. Where an estimator gives no "
        "unbiased value its expected value is taken.",
    )


def truth_plot(runs: Sequence[RunFacts]) -> Html | None:
    """Values against what became of the solution, and against truth."""
    curves: dict[str, list[SharePoint]] = {}
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        steps = run.steps
        drawn = steps.drawn == 1
        ends_right = share_points(steps.value[drawn], steps.right[drawn])
        curves[f"{prefix}solution ends right"] = ends_right
        curves[f"{prefix}step sound in truth"] = share_points(steps.value, steps.sound)
    rows: list[list[object]] = [
        [name, f"{p.predicted:.2f}", ranged(p.observed, p.low, p.high, ".3f"), p.num_predictions]
        for name, points in curves.items()
        for p in points
    ]
    if not rows:
        return None
    numbers = table(
        ["against", "mean value", "share [95% interval]", "steps"], rows, caption="Reliability"
    )
    return figure(
        "reliability",
        reliability_plot("Do the values hold?", curves),
        numbers,
        "A sampled solution's own outcome is an independent draw of each of its prefixes' values: "
        "its share should lie on the line. Soundness need not: a policy may never recover from a "
        "sound step. Intervals are Clopper-Pearson's; steps of one problem go together, so true "
        "ones are wider.",
    )


def place_plot(runs: Sequence[RunFacts]) -> Html | None:
    """Values along solutions that end right and wrong."""
    series: list[Series] = []
    rows: list[list[object]] = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        steps = run.steps
        for name, flag in (("ends right", 1.0), ("ends wrong", 0.0)):
            inside = (steps.right == flag) & ~np.isnan(steps.value)
            where = np.minimum((steps.place[inside] * 5).astype(int), 4)
            values = [steps.value[inside][where == fifth] for fifth in range(5)]
            kept = [(fifth, v) for fifth, v in enumerate(values) if len(v)]
            if not kept:
                continue
            means = [float(v.mean()) for _, v in kept]
            parts = [fifth for fifth, _ in kept]
            series.append(Series(name=prefix + name, x=parts, y=means, hue=len(series)))
            rows += [
                [prefix + name, FIFTHS[fifth], f"{m:.3f}", len(v)]
                for m, (fifth, v) in zip(means, kept, strict=True)
            ]
    if not series:
        return None
    plot = Plot(
        title="Values along solutions",
        x_label="part of the solution",
        y_label="mean value",
        series=series,
        y_range=(0, 1.02),
        ticks=dict(enumerate(FIFTHS)),
    )
    numbers = table(
        ["solutions", "part", "mean value", "steps"], rows, caption="Values along solutions"
    )
    return figure("places", plot, numbers)


FIFTHS = ("first fifth", "second", "third", "fourth", "last fifth")


def error_plot(runs: Sequence[RunFacts]) -> Html:
    """Where the first errors are, by label and in truth, and what is not decided."""
    undecided: dict[str, int] = {}
    columns: dict[str, Counter[int]] = {}
    totals: dict[str, int] = {}
    for run in runs:
        if not run.all.num_solutions:
            continue
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        columns[f"{prefix}labelled"] = run.errors_at
        totals[f"{prefix}labelled"] = run.all.num_solutions
        undecided[f"{prefix}labelled"] = run.num_undecided
        if run.true_errors_at is not None:
            columns[f"{prefix}in truth"] = run.true_errors_at
            totals[f"{prefix}in truth"] = run.all.num_solutions
    places = sorted({step for counts in columns.values() for step in counts})
    ticks = [*map(str, places), "none", "undecided"]
    shares = {}
    for name, counts in columns.items():
        open_ = undecided.get(name, 0)
        none = totals[name] - counts.total() - open_
        parts = [*(counts[step] for step in places), none, open_]
        shares[name] = [part / totals[name] for part in parts]
    plot = Plot(
        title="First errors",
        x_label="step, counted from 0",
        y_label="share of solutions",
        series=[
            Series(name=name, x=range(len(ticks)), y=column, kind="bars", hue=hue)
            for hue, (name, column) in enumerate(shares.items())
        ],
        ticks=dict(enumerate(ticks)),
    )
    rows = [[tick, *(f"{c[i]:.3f}" for c in shares.values())] for i, tick in enumerate(ticks)]
    return figure(
        "errors", plot, table(["step", *shares], rows, caption="Share of solutions by first error")
    )
