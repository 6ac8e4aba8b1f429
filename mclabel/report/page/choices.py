"""The report's part on best-of-N: curves, differences, where more samples hurt, who was fooled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mclabel.core.errors import ShardError
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM, scorer_of
from mclabel.evaluate.best_of_n.figures import Accuracy
from mclabel.evaluate.best_of_n.show import curves_plot, main_methods
from mclabel.report.page.html import Html, details, draw, figure, join, paragraph, ranged, table
from mclabel.run.kinds import BEST_OF_N, Run, is_code, read_json
from mclabel.show.figures import WIDTH, Plot, Series, row_height
from mclabel.show.texts import cut

MAX_FOOLED_SHOWN = 5
PROVENANCE = "provenance.json"
_NEEDED = ("accuracy", "differences", "pair_accuracy", "over_optimisation", "groups")


def read_evaluation(run: Run) -> Mapping[str, Any]:
    """What `mclabel eval best-of-n` has measured.

    Raises:
        ShardError: the evaluation was written by another version.
    """
    report = read_json(run.store, BEST_OF_N) or {}
    result = report.get("result")
    if not isinstance(result, Mapping) or any(key not in result for key in _NEEDED):
        raise ShardError(
            f"{run.location}/{BEST_OF_N}: of another version. Run `mclabel eval best-of-n` again; "
            "what it has sampled and scored is kept"
        )
    config = (read_json(run.store, PROVENANCE) or {}).get("config", {})
    return {**report, "is_code": is_code(config)}


def estimates(accuracy: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Accuracy:
    """Accuracies of an evaluation, as they were before they were written."""
    return {
        method: {
            int(n): Estimate(**{end: one[end] for end in ("value", "low", "high")})
            for n, one in by_size.items()
        }
        for method, by_size in accuracy.items()
    }


def best_of_n_part(report: Mapping[str, Any], identity: str) -> Html:
    """Everything about one evaluation.

    Args:
        report: as `read_evaluation` gives it.
        identity: begins the ids of its plots.
    """
    result = report["result"]
    size = str(result["num_samples"])
    left_out = (
        f" {report['num_excluded']} problems were left out, since scorers were trained on them."
    )
    intro = paragraph(
        f"{result['num_problems']:,} problems, {size} sampled solutions of each. Accuracy at N is "
        "the mean over all subsets of N samples; bands: 95% intervals by bootstrap over problems."
        + (left_out if report["num_excluded"] else "")
        + (
            f" {report['num_unscored']} samples could not be scored."
            if report["num_unscored"]
            else ""
        )
    )
    return join(
        intro,
        _curves(result, f"{identity}-curves"),
        _falls(result, report["num_fooled"], f"{identity}-falls"),
        _pairs(result, f"{identity}-pairs"),
        _groups(result, size),
        _fooled(report["fooled"], is_code=report["is_code"]),
    )


def _curves(result: Mapping[str, Any], identity: str) -> Html:
    accuracy, differences = result["accuracy"], result["differences"]
    sizes = list(accuracy[MAJORITY])
    named = estimates(accuracy)
    plot = curves_plot("Accuracy by N", {name: named[name] for name in main_methods(named)})
    last = sizes[-1]
    rows = []
    for method in accuracy:
        less = differences[last][method].get(MAJORITY)
        rows.append(
            [
                method,
                *(_interval(accuracy[method][n]) for n in sizes),
                "" if less is None or method == PASS else _interval(less, "+.3f"),
                "" if less is None or method == PASS else f"{less['p_value']:.3f}",
            ]
        )
    head = ["method", *(f"N={n}" for n in sizes), f"N={last}: less majority", "p-value"]
    numbers = table(head, rows, caption="Accuracy by method and N, 95% intervals")
    return figure(
        identity,
        plot,
        numbers,
        "The first aggregation of each scorer; bands of the first scorer and of majority alone. "
        "pass: some sample is right. The numbers hold all methods, also vote: majority weighted by "
        "the scorer, which the plot leaves out.",
    )


def _falls(result: Mapping[str, Any], num_fooled: Mapping[str, int], identity: str) -> Html:
    """Over-optimisation: what choosing from all samples loses against the best N."""
    found = result["over_optimisation"]
    size = str(result["num_samples"])
    names = sorted(found, key=lambda name: -found[name]["fall"]["value"])
    falls = [found[name]["fall"] for name in names]
    plot = _rows_plot("Does more choice help?", f"change from the best N to N={size}", names, falls)
    rows = [
        [
            name,
            str(one["best_size"]),
            f"{one['best']:.3f}",
            f"{one['last']:.3f}",
            "-" if str(one["best_size"]) == size else _interval(one["fall"], "+.3f"),
            num_fooled[name],
        ]
        for name, one in found.items()
    ]
    numbers = table(
        ["scorer", "best N", "accuracy there", f"N={size}", "change", "problems fooled"],
        rows,
        caption="Over-optimisation",
        marked=[one["fall"]["high"] < 0 for one in found.values()],
    )
    return figure(
        identity,
        plot,
        numbers,
        "Left of zero a scorer chooses worse among more samples: it is over-optimised. A dash: "
        f"N={size} is its best. Fooled: problems with a right sample of which a wrong one scores "
        "higher.",
    )


def _pairs(result: Mapping[str, Any], identity: str) -> Html:
    found = {k: e for k, e in result["pair_accuracy"].items() if e["value"] is not None}
    names = sorted(found, key=lambda name: -found[name]["value"])
    plot = _rows_plot(
        "Pairs ranked right", "share of pairs", names, [found[name] for name in names]
    )
    plot = replace(plot, x_range=(0, 1.02))
    rows = [[name, _interval(found[name])] for name in names]
    numbers = table(
        ["scorer", "share"],
        rows,
        caption="Pairs whose right sample scores higher than the wrong one",
    )
    return figure(
        identity,
        plot,
        numbers,
        "Of a right and a wrong sample of one problem, how often the right one scores higher; half "
        "is chance.",
    )


def _rows_plot(
    title: str, label: str, names: Sequence[str], found: Sequence[Mapping[str, Any]]
) -> Plot:
    """A figure with its interval in each row, the highest first, and a line at zero."""
    value, low, high = ([one[end] for one in found] for end in ("value", "low", "high"))
    places = range(len(names))
    zero = Series(name="", x=[0, 0], y=[-0.6, len(names) - 0.4], dash=":", is_thin=True)
    points = Series(name="", x=value, y=places, low=low, high=high, kind="points", hue=0)
    return Plot(
        title=title,
        x_label=label,
        series=[zero, points],
        rows=names,
        size=(WIDTH, row_height(len(names))),
    )


def _groups(result: Mapping[str, Any], size: str) -> Html:
    first: dict[str, str] = {}
    for method in result["pair_accuracy"]:
        first.setdefault(scorer_of(method), method)
    methods = [RANDOM, MAJORITY, *first.values(), PASS]
    parts = []
    for kind, groups in result["groups"].items():
        rows = []
        for name, group in groups.items():
            cells = [group["accuracy"][method][size] for method in methods]
            values = [_share(cell["value"]) for cell in cells]
            rows.append([name, group["num_problems"], *values])
        head = [kind.replace("_", " "), "problems", *methods]
        parts.append(table(head, rows, caption=f"Accuracy at N={size} by {kind.replace('_', ' ')}"))
    return join(*parts) if parts else Html("")


def _fooled(fooled: Mapping[str, list[Mapping[str, Any]]], *, is_code: bool) -> Html:
    solution = "quoted code" if is_code else "quoted"
    parts = []
    first: dict[str, str] = {}
    for name in fooled:
        first.setdefault(scorer_of(name), name)
    for name in first.values():
        cases = fooled[name]
        if not cases:
            continue
        shown = [
            draw("fooled", case=case, gold=cut(case["answer"]), kind=solution)
            for case in cases[:MAX_FOOLED_SHOWN]
        ]
        parts.append(
            details(f"What fooled {name}: {len(shown)} examples with the widest gaps", *shown)
        )
    return join(Html("<h3>What fooled the scorers</h3>"), *parts) if parts else Html("")


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _interval(estimate: Mapping[str, Any], form: str = ".3f") -> Html:
    return ranged(estimate["value"], estimate["low"], estimate["high"], form)
