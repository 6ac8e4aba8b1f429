"""The tables and the plot of `mclabel eval best-of-n`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM, scorer_of
from mclabel.evaluate.best_of_n.figures import Accuracy, BestOfN, Difference, is_reference
from mclabel.show.figures import WIDTH, Plot, Series

NUM_SHOWN = 3
"""Scorers beside each other."""


def best_of_n_table(
    result: BestOfN, names: Mapping[str, str] | None = None, *, against: Sequence[str] = (MAJORITY,)
) -> Table:
    """Accuracy by method and N, differences at the largest N, pair accuracy.

    Args:
        result: what to show; its references come last.
        names: the methods that are shown, and what they are called; all by their own names if None.
        against: methods that the others are compared with.
    """
    shown_as = {method: method for method in result.accuracy} if names is None else names
    ranks = {m: 2 if m == PASS else int(is_reference(m, result.references)) for m in shown_as}
    every = list(result.accuracy[MAJORITY])
    columns = 4 if len(against) == 1 else 1  # what 80 characters hold
    shown_sizes = np.linspace(len(every) - 1, 0, min(columns, len(every) // 2 + 1))[::-1]
    sizes = [every[round(i)] for i in shown_sizes]
    table = Table(
        title=f"Best of N on {result.num_problems} problems [95% interval]",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("method", no_wrap=True)
    for size in sizes:
        table.add_column(f"N={size}", justify="right", no_wrap=True)
    for number, other in enumerate(against):
        at = "" if number else f"{sizes[-1]}: "
        table.add_column(f"{at}less {shown_as[other]}", justify="right", min_width=17)
    table.add_column("pairs", justify="right", no_wrap=True)
    is_apart = False
    for method in sorted(shown_as, key=lambda m: ranks[m]):
        by_size = result.accuracy[method]
        if ranks[method] and not is_apart and result.references:
            table.add_section()
        is_apart = ranks[method] > 0
        cells = [f"{by_size[n].value:.3f}" for n in sizes]
        less = [None if method == PASS else result.less(method, m, sizes[-1]) for m in against]
        pairs = result.pair_accuracy.get(method)
        table.add_row(
            shown_as[method],
            *cells,
            *("" if one is None else _difference(one) for one in less),
            "" if pairs is None or pairs.value is None else f"{pairs.value:.2f}",
        )
    table.caption = (
        "pairs: of a right and a wrong sample of one problem, how often the right one scores "
        "higher. vote: majority weighted by the scorer."
        + (" pass: some of the N is right." if PASS in shown_as else "")
        + (" Below the line: upper references." if result.references else "")
    )
    table.caption_justify = "left"
    return table


def group_table(result: BestOfN) -> Table | None:
    """Accuracy at the largest N by kind of problem; None if all are of one kind."""
    if not result.groups:
        return None
    size = result.num_samples
    usable = [m for m in result.pair_accuracy if not is_reference(m, result.references)]
    best = sorted(usable, key=lambda m: -(result.accuracy[m][size].value or 0.0))
    methods = [RANDOM, MAJORITY, *best[:NUM_SHOWN], PASS]
    table = Table(
        title=f"By kind of problem, N={size}: the {len(best[:NUM_SHOWN])} best scorers",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("problems", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    for method in methods:
        table.add_column(method.replace(":", " "), justify="right")
    for kind, groups in result.groups.items():
        table.add_section()
        for name, group in groups.items():
            cells = [group.accuracy[m][size] for m in methods]
            shares = ["-" if e.value is None else f"{e.value:.2f}" for e in cells]
            table.add_row(f"{kind}: {name}", str(group.num_problems), *shares)
    return table


def over_optimisation_table(result: BestOfN, num_fooled: Mapping[str, int]) -> Table:
    """Where more samples make a scorer's choice worse, and how often it is fooled."""
    table = Table(
        title="Does more choice help?",
        title_justify="left",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    table.add_column("scorer", no_wrap=True)
    for name in ("best N", "there", f"N={result.num_samples}", "change", "fooled"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, one in result.over_optimisation.items():
        change = "" if one.best_size == result.num_samples else _difference(one.fall)
        table.add_row(
            name,
            str(one.best_size),
            f"{one.best:.3f}",
            f"{one.last:.3f}",
            change,
            str(num_fooled[name]),
        )
    table.caption = (
        "fooled: problems with a right sample of which a wrong one scores higher; the widest gaps "
        "are in best_of_n.json."
    )
    table.caption_justify = "left"
    return table


def _difference(estimate: Difference) -> str:
    """As markup."""
    return escape(_change(estimate))


def _change(estimate: Difference) -> str:
    value, low, high = (
        f"{number:+.2f}".replace("0.", ".", 1)
        for number in (estimate.value, estimate.low, estimate.high)
    )
    return f"{value} [{low}, {high}]"


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
