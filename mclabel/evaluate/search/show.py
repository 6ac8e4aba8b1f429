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
    """Return the tables of the comparison, best-of-N by N, the effect of larger n, and kinds of
    problems.
    """
    grids = [_methods(result), _reference(result), _over_optimisation(result)]
    grids += [_groups(kind, groups, result) for kind, groups in result.groups.items()]
    return [grid for grid in grids if grid.rows]


def _methods(result: SearchComparison) -> Grid:
    with_oracle = any(method.less_than_oracle is not None for method in result.methods)
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
        rows=tuple(_method(method, with_oracle=with_oracle) for method in result.methods),
        note=note,
        conclusion=_best_search(result),
    )


def _best_search(result: SearchComparison) -> str:
    """Compare the search that did best, among those without the truth, with best of N."""
    candidates = [
        method for method in result.methods if method.reference is not None and not method.is_oracle
    ]
    if not candidates:
        return ""
    best = max(candidates, key=lambda method: method.accuracy.value or 0.0)
    assert best.reference is not None
    return difference_words(
        f"{best.name} with n={best.n}, the best search here,",
        "best of N at the same cost",
        best.reference.less,
        result.num_problems,
    )


def _method(method: MethodFigures, *, with_oracle: bool) -> tuple[str, ...]:
    cells = [
        row_name(method.name, is_oracle=method.is_oracle),
        str(method.n),
        estimate_text(method.accuracy),
        _value(method.pass_rate),
        f"{method.num_sampled:,.0f}",
        f"{method.num_scored:,.0f}",
        _cost(method.cost),
        *_equal_cost(method.reference),
    ]
    return (*cells, *([_difference(method.less_than_oracle)] if with_oracle else []))


def _equal_cost(equal_cost: EqualCost | None) -> tuple[str, str]:
    if equal_cost is None:
        return "-", "-"
    mark = _BEYOND[equal_cost.beyond]
    return f"{mark}{estimate_text(equal_cost.accuracy)} {equal_cost.choice}", _difference(
        equal_cost.less
    )


def _reference(result: SearchComparison) -> Grid:
    rows = []
    for choice in CHOICES:
        for point in result.reference:
            scored = f"{point.num_scored:,.0f}" if choice in SCORED else "-"
            rows.append(
                (
                    f"{choice} of {point.size}",
                    estimate_text(point.accuracy[choice]),
                    f"{point.num_sampled:,.0f}",
                    scored,
                    _cost(point.cost[choice]),
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
                str(comparison.best_size),
                f"{comparison.best:.3f}",
                f"{comparison.last:.3f}",
                _difference(comparison.fall) if comparison.fall.value else "-",
            )
            for name, comparison in result.over_optimisation.items()
        ),
    )


def _groups(kind: str, groups: dict[str, GroupFigures], result: SearchComparison) -> Grid:
    names = [row_name(method.name, is_oracle=method.is_oracle) for method in result.methods]
    return Grid(
        title=f"By {kind}: right, and difference from best of N at equal cost",
        header=(kind, "problems", *names),
        rows=tuple(
            (name, f"{group.num_problems:,}", *_group_cells(group, names))
            for name, group in groups.items()
            if group.num_problems >= FEW
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


def _difference(difference: Difference | None) -> str:
    return (
        "-"
        if difference is None
        else f"{difference.value:+.2f} [{difference.low:+.2f}, {difference.high:+.2f}]"
    )


_DASHES = {BEST: "-", VOTE: "--", MAJORITY: "-.", PASS: ":"}
_AXIS = {
    "flops": "floating-point operations a problem",
    "tokens": "tokens computed a problem, by policy and scorer",
}


def search_plot(result: SearchComparison) -> Plot:
    """Plot one point for each search with its 95% interval, and one line for each choice of
    best-of-N.

    Searches that the truth steered are hollow.
    """
    lines = []
    for choice in CHOICES:
        estimates = [point.accuracy[choice] for point in result.reference]
        has_band = choice == BEST
        lines.append(
            Series(
                name=f"best of N: {choice}",
                x=[point.cost[choice] for point in result.reference],
                y=[estimate.value for estimate in estimates],
                low=[estimate.low for estimate in estimates] if has_band else (),
                high=[estimate.high for estimate in estimates] if has_band else (),
                is_band=has_band,
                dash=_DASHES[choice],
            )
        )
    order = list(dict.fromkeys(method.name for method in result.methods))
    points = [
        Series(
            name=row_name(method.name, is_oracle=method.is_oracle),
            x=[method.cost],
            y=[method.accuracy.value],
            low=[method.accuracy.low],
            high=[method.accuracy.high],
            kind="points",
            hue=order.index(method.name),
            is_hollow=method.is_oracle,
        )
        for method in result.methods
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
