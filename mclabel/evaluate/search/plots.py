"""Plot of a comparison of searches: accuracy against cost, best-of-N as curves."""

from __future__ import annotations

from pathlib import Path

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS
from mclabel.evaluate.search.figures import SearchComparison, row_name
from mclabel.evaluate.search.reference import BEST, CHOICES, VOTE
from mclabel.show.solutions import shown
from mclabel.show.style import BAND_ALPHA, HUES, INK, plot_style, save_plot

MARKERS = "osD^vP*X"
_LINES = {BEST: "-", VOTE: "--", MAJORITY: "-.", PASS: ":"}
_AXIS = {
    "flops": "floating-point operations a problem",
    "tokens": "tokens computed a problem, by policy and scorer",
}


def draw_searches(result: SearchComparison, stem: Path) -> None:
    """Save PNG and SVG: a point a search with its 95% interval, a line a choice of best-of-N.

    Searches that the truth steered are hollow.

    Args:
        result: what to draw.
        stem: path without a suffix.
    """
    import matplotlib.pyplot as plt

    with plot_style():
        figure, axes = plt.subplots(figsize=(8.5, 5.2), layout="constrained")
        for choice in CHOICES:
            points = [(one.cost[choice], one.accuracy[choice]) for one in result.reference]
            costs, values = [cost for cost, _ in points], [_ends(one) for _, one in points]
            axes.plot(
                costs,
                [value for value, _, _ in values],
                _LINES[choice],
                color=INK,
                marker=".",
                label=f"best of N: {choice}",
            )
            if choice == BEST:
                lows, highs = [low for _, low, _ in values], [high for *_, high in values]
                axes.fill_between(costs, lows, highs, color=INK, alpha=BAND_ALPHA, linewidth=0)
        order = list(dict.fromkeys(one.name for one in result.methods))
        for one in result.methods:
            number = order.index(one.name)
            value, low, high = _ends(one.accuracy)
            axes.errorbar(
                [one.cost],
                [value],
                yerr=[[max(0.0, value - low)], [max(0.0, high - value)]],
                fmt=MARKERS[number % len(MARKERS)],
                color=HUES[number % len(HUES)],
                markerfacecolor="none" if one.is_oracle else None,
                capsize=2,
                label=shown(row_name(one.name, is_oracle=one.is_oracle)),
            )
        axes.set_xscale("log")
        axes.set(xlabel=_AXIS[result.cost_unit], ylabel="accuracy of the chosen answer")
        axes.set_title(f"Searches, {result.num_problems:,} problems", loc="left")
        axes.grid()
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
        save_plot(figure, stem)
        plt.close(figure)


def _ends(one: Estimate) -> tuple[float, float, float]:
    return one.value or 0.0, one.low or 0.0, one.high or 0.0
