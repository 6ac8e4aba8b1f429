"""Plot of best-of-N: the accuracy of each method by the number of samples that it chooses from."""

from __future__ import annotations

from collections.abc import Collection

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM, scorer_of
from mclabel.evaluate.best_of_n.figures import Accuracy, is_reference
from mclabel.show.plots import WIDTH, Plot, Series

_DASHES = {PASS: ":", MAJORITY: "-", RANDOM: "--"}


def main_methods(accuracy: Accuracy) -> list[str]:
    """One method a scorer, its first that is no vote."""
    first: dict[str, str] = {}
    for method in accuracy:
        if not method.startswith("vote:"):
            first.setdefault(scorer_of(method), method)
    return list(first.values())


def curves_plot(
    title: str,
    accuracy: Accuracy,
    *,
    references: Collection[str] = (),
    size: tuple[float, float] = (WIDTH, 5.6),
) -> Plot:
    """A colour a scorer, the best first in the legend; 95% bands of majority and the first scorer.

    Args:
        title: of the plot.
        accuracy: methods by their importance. Thin lines are other aggregations of a scorer, and
            its vote.
        references: scorers that are not available in practice.
        size: without the legend.
    """
    sizes = list(accuracy[MAJORITY])
    main = main_methods(accuracy)
    banded = [MAJORITY, *[method for method in main if method not in _DASHES][:1]]
    scorers = list(dict.fromkeys(scorer_of(m) for m in accuracy if m not in _DASHES))

    def at_last(method: str) -> float:
        return accuracy[method][sizes[-1]].value or 0.0

    series = []
    for method in sorted(accuracy, key=lambda m: -at_last(m)):
        found = [accuracy[method][n] for n in sizes]
        is_main = method in main
        has_band = method in banded
        series.append(
            Series(
                name=f"{method}, {_percent(found[-1])}" if is_main else "",
                x=sizes,
                y=[one.value for one in found],
                low=[one.low for one in found] if has_band else (),
                high=[one.high for one in found] if has_band else (),
                is_band=has_band,
                hue=None if method in _DASHES else scorers.index(scorer_of(method)),
                dash=_dash(method, references),
                is_thin=not is_main,
            )
        )
    notes = ["thin: other aggregations, dashed: votes"] if len(main) < len(accuracy) else []
    notes += ["dash and dot: upper references"] if references else []
    return Plot(
        title=title,
        x_label="N, samples to choose from",
        y_label="accuracy of the chosen answer",
        series=series,
        ticks={n: str(n) for n in sizes},
        log=2,
        is_percent=True,
        legend_title="; ".join(notes),
        size=size,
    )


def _dash(method: str, references: Collection[str]) -> str:
    if is_reference(method, references):
        return "-."
    return _DASHES.get(method, "--" if method.startswith("vote:") else "")


def _percent(one: Estimate) -> str:
    return "-" if one.value is None else f"{one.value:.1%}"
