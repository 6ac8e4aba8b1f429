"""Pictures: a labelling run (solutions step by step, and whether values hold), and best-of-N."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.values import clopper_pearson
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM, scorer_of
from mclabel.evaluate.best_of_n.figures import BestOfN, is_reference
from mclabel.evaluate.labels.quality import exact_first_error
from mclabel.show.solutions import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_BINS = 8
NUM_SOLUTIONS = 3
MAX_LINE = 46  # characters of a step


def draw_labels(rows: Sequence[LabeledSolution], path: Path) -> None:
    """Save a PNG: steps of some solutions coloured by value, and a reliability plot.

    Args:
        rows: labelled solutions of the arith domain, with values (estimator `fixed`).
        path: of the PNG.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(12.5, 6.2), width_ratios=[1.35, 1], layout="constrained"
    )
    colours = plt.get_cmap("RdYlGn")
    _draw_solutions(left, _examples(rows), colours)
    _draw_reliability(right, rows)
    scale = figure.colorbar(
        matplotlib.cm.ScalarMappable(cmap=colours), ax=left, location="bottom", shrink=0.6, pad=0.02
    )
    scale.set_label("step value: share of rollouts from here that end right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_best_of_n(result: BestOfN, paths: Sequence[Path]) -> None:
    """Save accuracy by N: a colour a scorer, thin lines for its other aggregations and its vote.

    The scorers' first methods, and majority, have 95% bands.

    Args:
        result: what to draw.
        paths: where, in the format that each suffix names.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
    plain = {PASS: ("black", ":"), MAJORITY: ("black", "-"), RANDOM: ("grey", "--")}
    hues = plt.get_cmap("tab10")
    sizes = list(result.accuracy[MAJORITY])
    order: list[str] = []
    for method in sorted(result.accuracy, key=lambda method: method.startswith("vote:")):
        by_size = result.accuracy[method]
        scorer = scorer_of(method)
        main = scorer not in order
        if main:
            order.append(scorer)
        number = len([name for name in order[: order.index(scorer)] if name not in plain])
        colour, style = plain.get(method, (hues(number % 10), "-"))
        if is_reference(method, result.references):
            style = "-."
        elif not main:
            style = "--" if method.startswith("vote:") else "-"
        axes.plot(
            sizes,
            np.array([by_size[n].value for n in sizes], dtype=float),
            style,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)] if main and method not in plain else None,
            markersize=5,
            linewidth=1.8 if main else 0.7,
            label=scorer if main else None,
            zorder=3 if main else 2,
        )
        if main and method not in (RANDOM, PASS):
            low, high = ([getattr(by_size[n], end) for n in sizes] for end in ("low", "high"))
            axes.fill_between(sizes, low, high, color=colour, alpha=0.1, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.set(xlabel="N, samples to choose from", ylabel="accuracy of the chosen answer")
    axes.set_title(f"Best of N, {result.num_problems} problems", loc="left")
    axes.grid(alpha=0.25)
    handles, names = axes.get_legend_handles_labels()
    last = [result.accuracy[_main(result, name)][sizes[-1]].value or 0.0 for name in names]
    ranked = sorted(range(len(names)), key=lambda i: -last[i])
    axes.legend(
        [handles[i] for i in ranked],
        [names[i] for i in ranked],
        title="thin: other aggregations\ndashed: votes by the score"
        + ("\ndash and dot: upper references" if result.references else ""),
        frameon=False,
        fontsize=8,
        title_fontsize=8,
        loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )
    for path in paths:
        figure.savefig(path, dpi=130)
    plt.close(figure)


_MARKERS = "osD^vP*X"


def _main(result: BestOfN, scorer: str) -> str:
    """The first method of a scorer that is no vote."""
    return next(m for m in result.accuracy if scorer_of(m) == scorer and not m.startswith("vote:"))


def _examples(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """A right solution, one whose error was found, and one labelled wrongly or by luck."""
    usable = [r for r in rows if 4 <= len(r.steps) <= 7]

    def found(row: LabeledSolution) -> bool:
        return row.first_error is not None and row.first_error == exact_first_error(row) > 0  # type: ignore[operator]

    kinds: list[Callable[[LabeledSolution], bool]] = [
        lambda r: r.solution.outcome is Outcome.RIGHT and exact_first_error(r) is None,
        lambda r: r.solution.outcome is Outcome.WRONG and found(r),
        lambda r: r.first_error != exact_first_error(r),
    ]
    chosen: list[LabeledSolution] = []
    for kind in kinds:
        fresh = (r for r in usable if kind(r) and r not in chosen)
        chosen += [row] if (row := next(fresh, None)) else []
    return chosen[:NUM_SOLUTIONS] or list(rows[:NUM_SOLUTIONS])


def _draw_solutions(axes: Axes, rows: Sequence[LabeledSolution], colours: Any) -> None:
    axes.set_axis_off()
    axes.set_title("Three solutions, step by step", loc="left")
    y = 0.0
    for row in rows:
        truth = exact_first_error(row)
        outcome = row.solution.outcome
        axes.text(
            0,
            y,
            f"answer {shown(row.solution.prediction or 'none')[:20]} ({outcome}), "
            f"gold {row.problem.answer}",
            weight="bold",
            fontsize=9,
            va="center",
            parse_math=False,
        )
        y -= 1
        for index, (step, label) in enumerate(zip(row.solution.steps, row.steps, strict=True)):
            known = label.value is not None
            box = {
                "facecolor": colours(label.value) if known else "lightgrey",
                "edgecolor": "none",
                "pad": 2.5,
            }
            number = f"{label.value:.2f}" if known else " ? "
            ink = "white" if known and not 0.12 < (label.value or 0) < 0.88 else "black"
            axes.text(
                0, y, number, fontsize=9, va="center", family="monospace", bbox=box, color=ink
            )
            line = shown(step.text.strip())
            line = line if len(line) <= MAX_LINE else line[: MAX_LINE - 1] + "…"
            axes.text(0.09, y, line, fontsize=9, va="center", parse_math=False)
            notes = [
                note
                for note, here in (("true first error", truth), ("labelled", row.first_error))
                if here == index
            ]
            if notes:
                axes.text(0.66, y, "◀ " + ", ".join(notes), fontsize=8.5, va="center", color="#a00")
            y -= 1
        y -= 0.6
    axes.set_xlim(0, 1)
    axes.set_ylim(y, 1)


def _draw_reliability(axes: Axes, rows: Sequence[LabeledSolution]) -> None:
    """Value of a step against what became of the solution itself, an independent draw."""
    values, right, sound = [], [], []
    for row in rows:
        if row.solution.outcome not in (Outcome.RIGHT, Outcome.WRONG):
            continue
        error = exact_first_error(row)
        for index, label in enumerate(row.steps[:-1]):
            if label.value is not None:
                values.append(label.value)
                right.append(row.solution.outcome is Outcome.RIGHT)
                sound.append(error is None or index < error)
    axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":", label="perfect")
    bins = np.minimum((np.array(values) * NUM_BINS).astype(int), NUM_BINS - 1)
    for name, flags, style, colour in (
        ("this solution ends right", right, "o-", "#1f77b4"),
        ("step is sound in truth", sound, "s--", "#d97706"),
    ):
        points = []
        for number in range(NUM_BINS):
            inside = bins == number
            if inside.any():
                hits, total = int(np.array(flags)[inside].sum()), int(inside.sum())
                low, high = clopper_pearson(hits, total)
                mean = float(np.array(values)[inside].mean())
                points.append((mean, hits / total, low, high))
        if points:
            x, y, low_y, high_y = map(np.array, zip(*points, strict=True))
            bars = [y - low_y, high_y - y]
            axes.errorbar(x, y, yerr=bars, fmt=style, color=colour, capsize=2, label=name)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="step value from rollouts")
    axes.set_ylabel("share")
    axes.set_title("Do the values hold?", loc="left")
    axes.legend(loc="lower right", frameon=False)
    axes.grid(alpha=0.25)
