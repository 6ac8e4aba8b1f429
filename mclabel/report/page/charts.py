"""The plots of labelling runs in the report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mclabel.evaluate.labels.show import QUALITY_ROWS, compute_share_points, plot_reliability_curves
from mclabel.report.page.facts import GatheredRun
from mclabel.show.figures import WIDTH, Plot, Series, compute_plot_height

NUM_BINS = 10
"""Number of bins of the distribution of step values."""


def plot_labelling_runs(
    runs: Sequence[GatheredRun], facts: Sequence[dict[str, Any]]
) -> dict[str, Plot | None]:
    """Return the plots of labelling runs by name; None for a plot without data.

    Args:
        runs: data of the runs.
        facts: result of `GatheredRun.facts` for each run.
    """
    plots = {
        "quality": _plot_label_quality(facts),
        "errors": _plot_first_errors([run for run in runs if run.rows]),
        "values": _plot_step_values(runs),
        "reliability": _plot_reliability(runs),
    }
    return {name: plot if plot.series else None for name, plot in plots.items()}


def _plot_label_quality(facts: Sequence[dict[str, Any]]) -> Plot:
    """Plot the label quality with intervals, with one colour for each run."""
    qualities = {run["name"]: run["quality"] for run in facts if run["quality"] is not None}
    titles = [title.strip() for title in QUALITY_ROWS]
    series = []
    for hue, (name, quality) in enumerate(qualities.items()):
        offset = (hue - (len(qualities) - 1) / 2) * 0.6 / len(qualities)
        estimates = [getattr(quality, key) for key in QUALITY_ROWS.values()]
        value, low, high = (
            [getattr(estimate, bound) for estimate in estimates]
            for bound in ("value", "low", "high")
        )
        series.append(
            Series(
                name=name,
                x=value,
                y=[row_number + offset for row_number in range(len(estimates))],
                low=low,
                high=high,
                kind="points",
                hue=hue,
            )
        )
    return Plot(
        title="Labels against exact truth",
        x_label="share",
        series=series,
        x_range=(0, 1.02),
        rows=titles,
        size=(WIDTH, compute_plot_height(len(titles), len(qualities))),
    )


def _plot_first_errors(runs: Sequence[GatheredRun]) -> Plot:
    """Plot the shares of solutions by their labelled and by their true first error.

    Solutions without an error, and undecided ones, have bars of their own.
    """
    columns = {
        f"{_format_run_prefix(run, runs)}{name}": shares
        for run in runs
        for name, shares in run.compute_error_shares().items()
    }
    error_steps = sorted(
        {step for shares in columns.values() for step in shares if isinstance(step, int)}
    )
    ticks: list[int | str] = [*error_steps, "none", "undecided"]
    return Plot(
        title="First errors",
        x_label="step, counted from 0",
        y_label="share of solutions",
        series=_make_bars(
            range(len(ticks)),
            {
                name: [column_shares.get(tick, 0.0) for tick in ticks]
                for name, column_shares in columns.items()
            },
        ),
        ticks=dict(enumerate(map(str, ticks))),
    )


def _plot_step_values(runs: Sequence[GatheredRun]) -> Plot:
    """Plot the distribution of step values.

    For a single run whose true first errors are known, sound and wrong steps are shown separately.
    """
    values_by_group = {run.run.name: run.steps["value"] for run in runs}
    if len(runs) == 1 and runs[0].has_truth:
        steps = runs[0].steps
        names = {"sound in truth": 1.0, "wrong in truth": 0.0}
        values_by_group = {
            name: steps["value"][steps["sound"] == flag] for name, flag in names.items()
        }
    values_by_group = {name: values[~np.isnan(values)] for name, values in values_by_group.items()}
    total = sum(map(len, values_by_group.values()))
    edges = np.linspace(0, 1, NUM_BINS + 1)
    shares = {
        name: np.histogram(values, edges)[0] / (total if len(runs) == 1 else max(1, len(values)))
        for name, values in values_by_group.items()
        if total
    }
    return Plot(
        title="Distribution",
        x_label="value",
        y_label="share of steps",
        series=_make_bars([(low + high) / 2 for low, high in pairwise(edges)], shares),
        is_stacked=len(runs) == 1,
        ticks={float(edge): f"{edge:.1f}" for edge in edges},
    )


def _plot_reliability(runs: Sequence[GatheredRun]) -> Plot:
    """Plot step values against the share of right outcomes, and of steps that are truly sound."""
    curves = {}
    for run in runs:
        steps, drawn = run.steps, run.steps["drawn"] == 1
        curves[f"{_format_run_prefix(run, runs)}solution ends right"] = compute_share_points(
            steps["value"][drawn], steps["right"][drawn]
        )
        curves[f"{_format_run_prefix(run, runs)}step sound in truth"] = compute_share_points(
            steps["value"], steps["sound"]
        )
    curves_with_points = {name: points for name, points in curves.items() if points}
    title = "Do the values hold?"
    return (
        plot_reliability_curves(title, curves_with_points)
        if curves_with_points
        else Plot(title=title, x_label="", series=[])
    )


def _make_bars(positions: Sequence[float], columns: dict[str, Any]) -> list[Series]:
    return [
        Series(name=name, x=positions, y=list(column), kind="bars", hue=hue)
        for hue, (name, column) in enumerate(columns.items())
    ]


def _format_run_prefix(run: GatheredRun, runs: Sequence[GatheredRun]) -> str:
    return f"{run.run.name}: " if len(runs) > 1 else ""
