"""Plot of a comparison of searches: accuracy against cost, best-of-N as curves."""

from __future__ import annotations

from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS
from mclabel.evaluate.search.figures import SearchComparison, row_name
from mclabel.evaluate.search.reference import BEST, CHOICES, VOTE
from mclabel.show.plots import WIDTH, Plot, Series

_DASHES = {BEST: "-", VOTE: "--", MAJORITY: "-.", PASS: ":"}
_AXIS = {
    "flops": "floating-point operations a problem",
    "tokens": "tokens computed a problem, by policy and scorer",
}


def search_plot(result: SearchComparison) -> Plot:
    """A point a search with its 95% interval, a line a choice of best-of-N.

    Searches that the truth steered are hollow.
    """
    lines = []
    for choice in CHOICES:
        found = [one.accuracy[choice] for one in result.reference]
        has_band = choice == BEST
        lines.append(
            Series(
                name=f"best of N: {choice}",
                x=[one.cost[choice] for one in result.reference],
                y=[one.value for one in found],
                low=[one.low for one in found] if has_band else (),
                high=[one.high for one in found] if has_band else (),
                is_band=has_band,
                dash=_DASHES[choice],
            )
        )
    order = list(dict.fromkeys(one.name for one in result.methods))
    points = [
        Series(
            name=row_name(one.name, is_oracle=one.is_oracle),
            x=[one.cost],
            y=[one.accuracy.value],
            low=[one.accuracy.low],
            high=[one.accuracy.high],
            kind="points",
            hue=order.index(one.name),
            is_hollow=one.is_oracle,
        )
        for one in result.methods
    ]
    return Plot(
        title=f"Searches, {result.num_problems:,} problems",
        x_label=_AXIS[result.cost_unit],
        y_label="accuracy of the chosen answer",
        series=[*lines, *points],
        log=10,
        is_percent=True,
        size=(WIDTH, 5.6),
    )
