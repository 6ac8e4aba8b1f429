"""Draws a picture of a labelling run: some solutions with their step values, and a reliability
plot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.evaluate.labels.quality import find_exact_first_error
from mclabel.evaluate.labels.report import measure_group
from mclabel.evaluate.labels.show import plot_group_calibration
from mclabel.evaluate.labels.truth import find_exact_truth
from mclabel.show.figures import SERIES_COLOURS, apply_plot_style, draw_plot, save_figure
from mclabel.show.solutions import escape_unprintable_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_SOLUTIONS = 3
MAX_LINE = 46
"""Maximum characters of a step in the picture."""


def draw_labels_picture(rows: Sequence[LabeledSolution], path: Path) -> None:
    """Save a PNG with the steps of some solutions, coloured by value, and a reliability plot.

    Args:
        rows: labelled solutions of the bundled arithmetic problems, with values (estimator
            `fixed`).
        path: path of the PNG.
    """
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.figure import Figure

    plot = plot_group_calibration(measure_group(list(rows), find_exact_truth(rows), {}))
    assert plot is not None
    colours = colormaps["RdYlGn"]
    with apply_plot_style():
        figure = Figure(figsize=(12.5, 6.2), layout="constrained")
        left_axes, plot_axes = figure.subplots(1, 2, width_ratios=[1.35, 1])
        _draw_solutions(left_axes, _choose_examples(rows), colours)
        handles, names = draw_plot(plot_axes, plot)
        plot_axes.set_title(plot.title, loc="left")
        plot_axes.legend(handles, names, loc="lower right")
        colour_scale = ScalarMappable(cmap=colours)
        colour_bar = figure.colorbar(
            colour_scale, ax=left_axes, location="bottom", shrink=0.6, pad=0.02
        )
        colour_bar.ax.grid(visible=False)
        colour_bar.set_label("step value: share of rollouts from here that end right")
        save_figure(figure, path)


def _choose_examples(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """Choose up to three different solutions of 4 to 7 steps.

    The first is right in all steps. The second is wrong, and its first error is labelled exactly.
    The third is labelled with a first error that differs from the true one.
    """
    short_rows = [row for row in rows if 4 <= len(row.steps) <= 7]

    def is_exactly_labelled(row: LabeledSolution) -> bool:
        return row.first_error is not None and row.first_error == find_exact_first_error(row) > 0  # type: ignore[operator]

    conditions: list[Callable[[LabeledSolution], bool]] = [
        lambda row: row.solution.outcome is Outcome.RIGHT and find_exact_first_error(row) is None,
        lambda row: row.solution.outcome is Outcome.WRONG and is_exactly_labelled(row),
        lambda row: row.first_error != find_exact_first_error(row),
    ]
    chosen: list[LabeledSolution] = []
    for fits in conditions:
        matching_rows = (row for row in short_rows if fits(row) and row not in chosen)
        chosen += [row] if (row := next(matching_rows, None)) else []
    return chosen[:NUM_SOLUTIONS] or list(rows[:NUM_SOLUTIONS])


def _draw_solutions(axes: Axes, rows: Sequence[LabeledSolution], colours: Any) -> None:
    axes.set_axis_off()
    axes.set_title("Three solutions, step by step", loc="left")
    y = 0.0
    for row in rows:
        truth = find_exact_first_error(row)
        outcome = row.solution.outcome
        axes.text(
            0,
            y,
            f"answer {escape_unprintable_text(row.solution.prediction or 'none')[:20]} "
            f"({outcome}), "
            f"gold {row.problem.answer}",
            weight="bold",
            fontsize=9,
            va="center",
        )
        y -= 1
        for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True)):
            is_known = label.value is not None
            box_style = {
                "facecolor": colours(label.value) if is_known else "lightgrey",
                "edgecolor": "none",
                "pad": 2.5,
            }
            value_text = f"{label.value:.2f}" if is_known else " ? "
            text_colour = "white" if is_known and not 0.12 < (label.value or 0) < 0.88 else "black"
            axes.text(
                0,
                y,
                value_text,
                fontsize=9,
                va="center",
                family="monospace",
                bbox=box_style,
                color=text_colour,
            )
            line = escape_unprintable_text(step.text.strip())
            line = line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"
            axes.text(0.09, y, line, fontsize=9, va="center")
            notes = [
                note
                for note, error_index in (
                    ("true first error", truth),
                    ("labelled", row.first_error),
                )
                if error_index == index
            ]
            if notes:
                axes.text(
                    0.66,
                    y,
                    "◀ " + ", ".join(notes),
                    fontsize=8.5,
                    va="center",
                    color=SERIES_COLOURS[1],
                )
            y -= 1
        y -= 0.6
    axes.set_xlim(0, 1)
    axes.set_ylim(y, 1)
