"""Tables and the plot of a comparison of searches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS
from mclabel.evaluate.best_of_n.figures import Difference
from mclabel.evaluate.best_of_n.show import difference_words
from mclabel.evaluate.grouping import FEW
from mclabel.evaluate.search.figures import (
    EqualCost,
    GroupFigures,
    MethodFigures,
    SearchComparison,
    row_name,
)
from mclabel.evaluate.search.reference import BEST, CHOICES, SCORED, VOTE
from mclabel.show.figures import WIDTH, Grid, Plot, Series, estimate_text

_BEYOND = {"below": "< ", "above": "> ", None: ""}
_UNIT = {"flops": "FLOPs", "tokens": "tokens computed"}


def search_grids(result: SearchComparison) -> list[Grid]:
    """The comparison, best-of-N by N, what larger n does, and kinds of problems."""
    grids = [_methods(result), _reference(result), _over_optimisation(result)]
    grids += [_groups(kind, groups, result) for kind, groups in result.groups.items()]
    return [grid for grid in grids if grid.rows]


def _methods(result: SearchComparison) -> Grid:
    with_oracle = any(one.less_than_oracle is not None for one in result.methods)
    head = ["search", "n", "right", "some right", "sampled", "scored", _UNIT[result.cost_unit]]
    head += ["best of N, same cost", "vs best of N", *(["exact vs it"] if with_oracle else [])]
    note = (
        "Right: the chosen solution. Some right: any finished one. Sampled, scored: tokens a "
        "problem. Best of N: the better of best and weighted vote at the same cost; < where "
        "even the smallest N costs more, > where even the largest costs less."
    )
    if with_oracle:
        note += " Exact: steered by the truth; exact vs it is what errors of the scorer cost."
    return Grid(
        title=f"Searches on {result.num_problems:,} problems [95% interval]",
        header=tuple(head),
        rows=tuple(_method(one, with_oracle=with_oracle) for one in result.methods),
        note=note,
        conclusion=_best_search(result),
    )


def _best_search(result: SearchComparison) -> str:
    """Compare the search that did best, among those without the truth, with best of N."""
    found = [one for one in result.methods if one.reference is not None and not one.is_oracle]
    if not found:
        return ""
    best = max(found, key=lambda one: one.accuracy.value or 0.0)
    assert best.reference is not None
    return difference_words(
        f"{best.name} with n={best.n}, the best search here,",
        "best of N at the same cost",
        best.reference.less,
        result.num_problems,
    )


def _method(one: MethodFigures, *, with_oracle: bool) -> tuple[str, ...]:
    cells = [
        row_name(one.name, is_oracle=one.is_oracle),
        str(one.n),
        estimate_text(one.accuracy),
        _value(one.pass_rate),
        f"{one.num_sampled:,.0f}",
        f"{one.num_scored:,.0f}",
        _cost(one.cost),
        *_equal_cost(one.reference),
    ]
    return (*cells, *([_difference(one.less_than_oracle)] if with_oracle else []))


def _equal_cost(one: EqualCost | None) -> tuple[str, str]:
    if one is None:
        return "-", "-"
    mark = _BEYOND[one.beyond]
    return f"{mark}{estimate_text(one.accuracy)} {one.choice}", _difference(one.less)


def _reference(result: SearchComparison) -> Grid:
    rows = []
    for choice in CHOICES:
        for one in result.reference:
            scored = f"{one.num_scored:,.0f}" if choice in SCORED else "-"
            rows.append(
                (
                    f"{choice} of {one.size}",
                    estimate_text(one.accuracy[choice]),
                    f"{one.num_sampled:,.0f}",
                    scored,
                    _cost(one.cost[choice]),
                )
            )
    return Grid(
        title="Best of N",
        header=("choice", "right", "sampled", "scored", _UNIT[result.cost_unit]),
        rows=tuple(rows),
        note=f"{PASS}: any solution is right. Means over parts of the "
        f"{result.reference[-1].size} solutions that were sampled for each problem.",
    )


def _over_optimisation(result: SearchComparison) -> Grid:
    return Grid(
        title="Does a larger n help?",
        header=("search", "best n", "right at best n", "right at the largest", "largest vs best"),
        rows=tuple(
            (
                name,
                str(one.best_size),
                f"{one.best:.3f}",
                f"{one.last:.3f}",
                _difference(one.fall) if one.fall.value else "-",
            )
            for name, one in result.over_optimisation.items()
        ),
    )


def _groups(kind: str, groups: dict[str, GroupFigures], result: SearchComparison) -> Grid:
    names = [row_name(one.name, is_oracle=one.is_oracle) for one in result.methods]
    return Grid(
        title=f"By {kind}: right, and difference from best of N at equal cost",
        header=(kind, "problems", *names),
        rows=tuple(
            (name, f"{one.num_problems:,}", *_group_cells(one, names))
            for name, one in groups.items()
            if one.num_problems >= FEW
        ),
    )


def _group_cells(group: GroupFigures, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        less = group.less.get(name)
        yield _value(group.accuracy[name]) + ("" if less is None else f" ({less.value:+.2f})")


def _cost(cost: float) -> str:
    return f"{cost:.3g}"


def _value(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.2f}"


def _difference(one: Difference | None) -> str:
    return "-" if one is None else f"{one.value:+.2f} [{one.low:+.2f}, {one.high:+.2f}]"


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
