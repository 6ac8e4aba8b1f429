"""Best-of-N evaluations in the report: what a scorer brings, curves, who was fooled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mclabel.core.errors import ShardError
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM
from mclabel.evaluate.best_of_n.figures import is_reference
from mclabel.evaluate.best_of_n.show import curves_plot, main_methods
from mclabel.run.kinds import BEST_OF_N, Run, is_code, read_json
from mclabel.show.figures import WIDTH, Plot, Series, row_height

MAX_FOOLED_SHOWN = 5
PROVENANCE = "provenance.json"
_NEEDED = ("accuracy", "differences", "pair_accuracy", "over_optimisation", "groups")


def evaluation_data(run: Run) -> dict[str, Any]:
    """Return what `mclabel eval best-of-n` has measured.

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
    accuracy = {
        method: {int(n): estimate(figures) for n, figures in by_size.items()}
        for method, by_size in result["accuracy"].items()
    }
    choice = main_choice(result)
    head = {method: accuracy[method] for method in choice["methods"]}
    main = {method: accuracy[method] for method in main_methods(accuracy)}
    pairs = {k: estimate(e) for k, e in result["pair_accuracy"].items() if e["value"] is not None}
    over_optimised = result["over_optimisation"]
    falls = {name: estimate(figures["fall"]) for name, figures in over_optimised.items()}
    size = result["num_samples"]
    title, axis = "Does more choice help?", f"change from the best N to N={size}"
    return {
        **{key: report[key] for key in ("num_excluded", "num_unscored")},
        **{key: result[key] for key in ("num_problems", "num_samples")},
        "is_code": is_code(config),
        "choice": choice,
        "accuracy": _accuracy(result, accuracy),
        "over_optimisation": [
            {
                "scorer": name,
                "best N": str(figures["best_size"]),
                "accuracy at best N": figures["best"],
                f"N={size}": figures["last"],
                "change": "-" if figures["best_size"] == size else difference_text(figures["fall"]),
                "problems fooled": report["num_fooled"][name],
            }
            for name, figures in over_optimised.items()
        ],
        "groups": _groups(result),
        "fooled": {
            name: report["fooled"][name][:MAX_FOOLED_SHOWN]
            for name in main_methods(report["fooled"])
        },
        "plots": {
            "choice": curves_plot("Choosing among samples", head, size=(5.2, 3.8)),
            "curves": curves_plot("Accuracy by N", main),
            "falls": _rows_plot(title, axis, falls),
            "pairs": _rows_plot("Pairs ranked right", "share of pairs", pairs, (0, 1.02)),
        },
    }


def main_choice(result: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of an evaluation that stand at the head, at the largest N.

    None of its references is among them. The scorer is the first that the evaluation names, by its
    first aggregation: taking the one that did best here would overstate it. The likelihood is the
    best one, which understates what the scorer brings against it.
    """
    accuracy, size = result["accuracy"], str(result["num_samples"])
    methods = [m for m in accuracy if not is_reference(m, result.get("references", ()))]
    likelihoods = [method for method in methods if method.startswith("likelihood:")]
    others = (MAJORITY, RANDOM, PASS, *likelihoods)
    scorers = [m for m in methods if m not in others and not m.startswith("vote:")]
    scorer = next(iter(scorers), None)
    likelihood = max(likelihoods, key=lambda m: accuracy[m][size]["value"], default=None)
    less = {} if scorer is None else result["differences"][size][scorer]
    named = (scorer, likelihood, MAJORITY, PASS)
    return {
        "scorer": scorer,
        "likelihood": likelihood,
        "methods": [m for m in (scorer, likelihood, MAJORITY, RANDOM) if m is not None],
        "solved": {m: estimate(accuracy[m][size]) for m in named if m is not None},
        "gains": {m: estimate(less[m]) for m in (MAJORITY, likelihood) if m in less},
    }


def _accuracy(
    result: Mapping[str, Any], accuracy: Mapping[str, Mapping[int, Estimate]]
) -> list[dict[str, Any]]:
    """Accuracy of every method by N, and its difference from majority vote at the largest."""
    rows = []
    for method, by_size in accuracy.items():
        last = max(by_size)
        less = None if method == PASS else result["differences"][str(last)][method].get(MAJORITY)
        rows.append(
            {
                "method": method,
                **{f"N={n}": value for n, value in by_size.items()},
                f"N={last}: vs majority": "" if less is None else difference_text(less),
                "p-value": "" if less is None else f"{less['p_value']:.3f}",
            }
        )
    return rows


def _groups(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Accuracy at the largest N by field of the problems' metadata and its value."""
    methods = [RANDOM, MAJORITY, *main_methods(result["pair_accuracy"]), PASS]
    size = str(result["num_samples"])
    return {
        kind.replace("_", " "): [
            {"": name, "problems": group["num_problems"]}
            | {method: group["accuracy"][method][size]["value"] for method in methods}
            for name, group in groups.items()
        ]
        for kind, groups in result["groups"].items()
    }


def _rows_plot(
    title: str,
    label: str,
    estimates: Mapping[str, Estimate],
    x_range: tuple[float, float] | None = None,
) -> Plot:
    """A figure with its interval in each row, the highest first, and a line at zero."""
    names = sorted(estimates, key=lambda name: -(estimates[name].value or 0.0))
    value, low, high = (
        [getattr(estimates[name], end) for name in names] for end in ("value", "low", "high")
    )
    zero = Series(name="", x=[0, 0], y=[-0.6, len(names) - 0.4], dash=":", is_thin=True)
    places = range(len(names))
    points = Series(name="", x=value, y=places, low=low, high=high, kind="points", hue=0)
    size = (WIDTH, row_height(len(names)))
    return Plot(
        title=title, x_label=label, series=[zero, points], rows=names, size=size, x_range=x_range
    )


def estimate(content: Mapping[str, Any]) -> Estimate:
    """An estimate as it was before it was written."""
    return Estimate(**{end: content[end] for end in ("value", "low", "high")})


def difference_text(content: Mapping[str, float]) -> str:
    """`+0.120 [+0.050, +0.190]`."""
    return f"{content['value']:+.3f} [{content['low']:+.3f}, {content['high']:+.3f}]"
