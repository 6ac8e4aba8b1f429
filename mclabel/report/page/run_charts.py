"""The report's plots of labelling runs, each with its numbers as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mclabel.core.stats.values import clopper_pearson
from mclabel.evaluate.labels.quality import LabelQuality
from mclabel.evaluate.labels.run_tables import QUALITY_ROWS
from mclabel.report.page.charts import filled, layout, line, spread
from mclabel.report.page.facts import Floats, RunFacts
from mclabel.report.page.html import Html, figure, table

NUM_BINS = 10


def quality_plot(groups: Mapping[str, LabelQuality], identity: str, numbers: Html) -> Html:
    """Label quality with intervals, a colour a run."""
    data = []
    titles = [title.strip() for title in QUALITY_ROWS]
    for number, (name, quality) in enumerate(groups.items()):
        beside = (number - (len(groups) - 1) / 2) * 0.6 / len(groups)
        rows = [
            (place + beside, e)
            for place, key in enumerate(QUALITY_ROWS.values())
            if (e := getattr(quality, key)).value is not None
        ]
        values = [e.value for _, e in rows]
        data.append(
            line(
                name,
                number,
                values,
                [place for place, _ in rows],
                mode="markers",
                error_x=spread(values, [e.low for _, e in rows], [e.high for _, e in rows]),
                hovertemplate="%{x:.3f}",
            )
        )
    spec = {
        "data": data,
        "layout": layout(
            "Labels against exact truth",
            "share",
            "",
            xaxis={"range": [0, 1.02]},
            yaxis={
                "range": [len(titles) - 0.4, -0.6],
                "tickvals": list(range(len(titles))),
                "ticktext": titles,
            },
            rows=len(titles) * max(1, len(groups) * 0.6),
        ),
    }
    return figure(identity, spec, numbers, "95% intervals by bootstrap over problems.")


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
    centres = ((edges[:-1] + edges[1:]) / 2).tolist()
    data = [
        {
            "type": "bar",
            "name": name,
            "x": centres,
            "text": bins,
            "textposition": "none",
            "hovertemplate": "%{text}: %{y:.3f}",
            "y": column.tolist(),
            "marker": filled(number),
        }
        for number, (name, column) in enumerate(shares.items())
    ]
    mode = "stack" if len(runs) == 1 else "group"
    spec = {
        "data": data,
        "layout": layout("Distribution", "value", "share of steps", barmode=mode, bargap=0.1),
    }
    rows = [[b, *(f"{c[i]:.3f}" for c in shares.values())] for i, b in enumerate(bins)]
    numbers = table(["value", *shares], rows, caption="Share of steps by value")
    return figure(
        "values",
        spec,
        numbers,
        "Last steps, whose label is the outcome, are left out. Where an estimator gives no "
        "unbiased value its expected value is taken.",
    )


def reliability_plot(runs: Sequence[RunFacts]) -> Html | None:
    """Values against what became of the solution, and against truth."""
    series: list[tuple[str, Floats, Floats]] = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        steps = run.steps
        drawn = steps.drawn == 1
        series += [
            (f"{prefix}solution ends right", steps.value[drawn], steps.right[drawn]),
            (f"{prefix}step sound in truth", steps.value, steps.sound),
        ]
    data: list[dict[str, Any]] = []
    rows: list[list[object]] = []
    for name, values, flags in series:
        points = _bins(values, flags)
        if not points:
            continue
        mean, rate, low, high, count = (list(column) for column in zip(*points, strict=True))
        data.append(line(name, len(data), mean, rate, error_y=spread(rate, low, high)))
        rows += [
            [name, f"{m:.2f}", f"{r:.3f}", f"[{a:.3f}, {b:.3f}]", int(n)]
            for m, r, a, b, n in zip(mean, rate, low, high, count, strict=True)
        ]
    if not data:
        return None
    perfect = {
        "type": "scatter",
        "mode": "lines",
        "name": "perfect",
        "x": [0, 1],
        "y": [0, 1],
        "line": {"color": "quiet", "dash": "dot", "width": 1},
        "hoverinfo": "skip",
    }
    spec = {
        "data": [perfect, *data],
        "layout": layout(
            "Do the values hold?",
            "value of the step",
            "share",
            xaxis={"range": [-0.02, 1.02]},
            yaxis={"range": [-0.02, 1.02]},
        ),
    }
    numbers = table(
        ["against", "mean value", "share", "95% interval", "steps"], rows, caption="Reliability"
    )
    return figure(
        "reliability",
        spec,
        numbers,
        "A sampled solution's own outcome is an independent draw of each of its prefixes' values: "
        "its share should lie on the line. Soundness need not: a policy may never recover from a "
        "sound step. Intervals are Clopper-Pearson's; steps of one problem go together, so true "
        "ones are wider.",
    )


def place_plot(runs: Sequence[RunFacts]) -> Html | None:
    """Values along solutions that end right and wrong."""
    data: list[dict[str, Any]] = []
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
            places = [FIFTHS[fifth] for fifth, _ in kept]
            means = [float(v.mean()) for _, v in kept]
            data.append(line(prefix + name, len(data), places, means))
            rows += [
                [prefix + name, place, f"{m:.3f}", len(v)]
                for place, m, (_, v) in zip(places, means, kept, strict=True)
            ]
    if not data:
        return None
    spec = {
        "data": data,
        "layout": layout(
            "Values along solutions", "part of the solution", "mean value", yaxis={"range": [0, 1]}
        ),
    }
    numbers = table(
        ["solutions", "part", "mean value", "steps"], rows, caption="Values along solutions"
    )
    return figure("places", spec, numbers)


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
    data = [
        {
            "type": "bar",
            "name": name,
            "x": ticks,
            "y": column,
            "marker": filled(number),
        }
        for number, (name, column) in enumerate(shares.items())
    ]
    spec = {
        "data": data,
        "layout": layout(
            "First errors",
            "step, counted from 0",
            "share of solutions",
            barmode="group",
            xaxis={"type": "category"},
        ),
    }
    rows = [[tick, *(f"{c[i]:.3f}" for c in shares.values())] for i, tick in enumerate(ticks)]
    return figure(
        "errors", spec, table(["step", *shares], rows, caption="Share of solutions by first error")
    )


def _bins(values: Floats, flags: Floats) -> list[tuple[float, float, float, float, int]]:
    """Mean value, rate with its interval, and count of every bin that holds something."""
    known = ~np.isnan(values) & ~np.isnan(flags)
    values, flags = values[known], flags[known]
    where = np.minimum((values * NUM_BINS).astype(int), NUM_BINS - 1)
    points = []
    for number in range(NUM_BINS):
        inside = where == number
        if count := int(inside.sum()):
            hits = int(flags[inside].sum())
            low, high = clopper_pearson(hits, count)
            points.append((float(values[inside].mean()), hits / count, low, high, count))
    return points
