"""Makes plots of the quality of labels, and tables of a run for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.values import clopper_pearson
from mclabel.evaluate.labels.calibration import NUM_BINS
from mclabel.evaluate.labels.quality import LabelCost, LabelQuality, PositionMean
from mclabel.evaluate.labels.report import GroupReport
from mclabel.show.figures import WIDTH, Grid, Plot, Series, describe_share, format_estimate


class SharePoint(NamedTuple):
    """Share of predictions that came true, among those with a probability in one range.

    `low` and `high` are the ends of its interval.
    """

    predicted: float
    """Mean predicted probability."""
    observed: float | None
    """Share of predictions that came true; None if unknown."""
    low: float | None
    high: float | None
    num_predictions: int


_CALIBRATION_NAMES = {
    "value, outcome": "solution ends right",
    "value, sound": "step sound in truth",
}
"""Names under which plots show two of the tables in `GroupReport.calibration`."""


def compute_share_points(
    values: NDArray[np.float64], flags: NDArray[np.float64]
) -> list[SharePoint]:
    """Return one point, with a Clopper-Pearson interval, for each range of probabilities.

    The ranges are `NUM_BINS` equal parts of 0..1. A range without predictions has no point.

    Args:
        values: predicted probabilities, [predictions]; NaN for no prediction.
        flags: 1 if the prediction came true, 0 if not, NaN if that is unknown, [predictions].
    """
    is_known = ~np.isnan(values) & ~np.isnan(flags)
    values, flags = values[is_known], flags[is_known]
    where = np.minimum((values * NUM_BINS).astype(int), NUM_BINS - 1)
    points = []
    for number in range(NUM_BINS):
        inside = where == number
        if count := int(inside.sum()):
            hits = int(flags[inside].sum())
            low, high = clopper_pearson(hits, count)
            points.append(SharePoint(float(values[inside].mean()), hits / count, low, high, count))
    return points


def plot_reliability_curves(title: str, curves: Mapping[str, Sequence[SharePoint]]) -> Plot:
    """Plot predicted against observed shares, and below it the number of predictions.

    Args:
        title: title of the plot.
        curves: points of each curve by name; curves without points are left out.
    """
    shown = {name: points for name, points in curves.items() if points}
    perfect = Series(name="perfect", x=[0, 1], y=[0, 1], dash=":", is_thin=True)
    lines, counts = [], []
    for hue, (name, points) in enumerate(shown.items()):
        predicted, observed, low, high, _ = (list(c) for c in zip(*points, strict=True))
        lines.append(Series(name=name, x=predicted, y=observed, low=low, high=high, hue=hue))
        total = sum(point.num_predictions for point in points)
        shares = np.zeros(NUM_BINS)
        for point in points:
            shares[min(int(point.predicted * NUM_BINS), NUM_BINS - 1)] += (
                point.num_predictions / total
            )
        counts.append(
            Series(
                name=name,
                x=(np.arange(NUM_BINS) + 0.5) / NUM_BINS,
                y=shares,
                kind="bars",
                hue=hue,
            )
        )
    return Plot(
        title=title,
        x_label="predicted",
        y_label="share that came true",
        series=[perfect, *lines],
        x_range=(-0.02, 1.02),
        y_range=(-0.02, 1.02),
        below=Plot(title="", x_label="predicted", y_label="steps", series=counts, is_percent=True),
        size=(WIDTH, 6.4),
    )


def plot_group_calibration(group: GroupReport) -> Plot | None:
    """Plot predicted against observed shares of a group, with 95% intervals over problems.

    None if the group has no predictions.
    """
    if not group.calibration:
        return None
    curves = {
        f"{_CALIBRATION_NAMES.get(name, name)} (ECE {calibration.ece.value:.3f}, "
        f"Brier {calibration.brier.value:.3f})": [
            SharePoint(
                b.predicted, b.observed.value, b.observed.low, b.observed.high, b.num_predictions
            )
            for b in calibration.bins
        ]
        for name, calibration in group.calibration.items()
    }
    return plot_reliability_curves(f"Do the values hold? {group.num_solutions:,} solutions", curves)


def plot_values_by_position(group: GroupReport) -> Plot | None:
    """Plot the mean value by relative position, with bands; None if there are no values."""
    if not group.positions:
        return None
    return Plot(
        title="Values along solutions",
        x_label="position in the solution",
        y_label="mean value of a step",
        series=[
            _make_position_series(name, curve, hue)
            for hue, (name, curve) in enumerate(group.positions.items())
        ],
        x_range=(0, 1),
        y_range=(-0.02, 1.02),
    )


def _make_position_series(name: str, curve: Sequence[PositionMean], hue: int) -> Series:
    middles = [(part.low + part.high) / 2 for part in curve]
    values, low, high = (
        [getattr(part.value, end) for part in curve] for end in ("value", "low", "high")
    )
    return Series(name=name, x=middles, y=values, low=low, high=high, hue=hue, is_band=True)


QUALITY_ROWS = {
    "pass@1": "pass_at_1",
    "wrong steps": "wrong_steps",
    "decided": "decided",
    "first error found": "first_error_accuracy",
    "  if there is an error": "first_error_accuracy_wrong",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "kappa": "kappa",
    "false positives": "false_positive_rate",
    "lucky answers": "right_through_wrong",
}


def make_quality_grid(groups: Mapping[str, LabelQuality]) -> Grid:
    """Return a table of label quality against the truth, with one column per group of solutions."""
    counts = [
        (name, *(f"{getattr(quality, f'num_{name}'):,}" for quality in groups.values()))
        for name in ("problems", "solutions")
    ]
    shares = [
        (name, *(format_estimate(getattr(quality, field)) for quality in groups.values()))
        for name, field in QUALITY_ROWS.items()
    ]
    return Grid(
        title="Labels against exact truth [95% interval]",
        header=("", *groups),
        rows=(*counts, *shares),
        conclusion=summarise_quality(groups["all"]),
        note="First error found: share of solutions whose labelled first error, or its absence, is "
        "true. Precision and recall: of wrong steps. False positives: share of sound steps. Lucky "
        "answers: share of right answers that were reached through a wrong step.",
    )


def summarise_quality(quality: LabelQuality) -> str:
    """Return a sentence on the shares of first errors found and of sound steps labelled wrong.

    A second sentence states the share of undecided solutions, if there are any.
    """
    open_share = 1 - (1.0 if quality.decided.value is None else quality.decided.value)
    return (
        f"The labels find {describe_share(quality.first_error_accuracy_wrong)} of first errors and "
        f"call {describe_share(quality.false_positive_rate)} of sound steps wrong."
        + (f" They leave {open_share:.0%} of solutions undecided." if open_share else "")
    )


def make_label_counts_table(rows: Sequence[LabeledSolution], cost: LabelCost) -> Table:
    """Return a table of a run's numbers of problems, solutions, labels and rollout tokens."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim")
    table.add_column(justify="right")
    outcomes = {o: sum(r.solution.outcome is o for r in rows) for o in Outcome}
    labels = [step.hard for row in rows for step in row.steps]
    table.add_row("problems", f"{len({r.problem.id for r in rows}):,}")
    table.add_row("solutions", f"{len(rows):,}")
    for outcome, count in outcomes.items():
        if count or outcome in (Outcome.RIGHT, Outcome.WRONG):
            table.add_row(f"  {outcome}", f"{count:,}")
    if (kept := count_solutions_kept_by_consensus(rows)) is not None:
        table.add_row("  kept by the consensus", f"{kept:,}")
    for name, figure in {
        "steps": len(labels),
        "  labelled sound": labels.count(True),
        "  labelled wrong": labels.count(False),
        "  without a verdict": labels.count(None),
        "rollout tokens a solution": cost.tokens_per_solution,
        "  without sharing prefixes": cost.tokens_per_solution_unshared,
    }.items():
        table.add_row(name, f"{figure:,.0f}")
    return table


def count_solutions_kept_by_consensus(rows: Sequence[LabeledSolution]) -> int | None:
    """Return the number of solutions that the rule of `mclabel combine` keeps.

    It is None if the run is not a combined one.
    """
    flags = [row.consensus.kept for row in rows if row.consensus is not None]
    return sum(flags) if flags else None
