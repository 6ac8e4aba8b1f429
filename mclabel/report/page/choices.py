"""Best-of-N evaluations in the report: gains of scorers, curves of accuracy by N, and examples of
wrong choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mclabel.core.errors import ShardError
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.best_of_n.choosing import MAJORITY, PASS, RANDOM
from mclabel.evaluate.best_of_n.figures import is_reference
from mclabel.evaluate.best_of_n.show import plot_accuracy_curves, select_main_methods
from mclabel.run.kinds import BEST_OF_N, Run, has_program_solutions, read_checked_json
from mclabel.show.figures import WIDTH, Plot, Series, compute_plot_height

MAX_FOOLED_SHOWN = 5
"""Maximum number of wrong choices shown for each scorer."""
PROVENANCE = "provenance.json"
_REQUIRED_FIGURES = ("accuracy", "differences", "pair_accuracy", "over_optimisation", "groups")


def collect_evaluation_data(run: Run) -> dict[str, Any]:
    """Return the results of `mclabel eval best-of-n` in the form of the report.

    Raises:
        ShardError: the evaluation was written by another version.
    """
    report = read_checked_json(run.store, BEST_OF_N) or {}
    result = report.get("result")
    if not isinstance(result, Mapping) or any(key not in result for key in _REQUIRED_FIGURES):
        raise ShardError(
            f"{run.location}/{BEST_OF_N}: was written by another version. Run `mclabel eval "
            "best-of-n` again; its samples and scores are reused"
        )
    config = (read_checked_json(run.store, PROVENANCE) or {}).get("config", {})
    accuracy = {
        method: {int(size): parse_estimate(figures) for size, figures in by_size.items()}
        for method, by_size in result["accuracy"].items()
    }
    choice = choose_main_results(result)
    main_accuracy = {method: accuracy[method] for method in choice["methods"]}
    curve_accuracy = {method: accuracy[method] for method in select_main_methods(accuracy)}
    pairs = {
        scorer: parse_estimate(estimate)
        for scorer, estimate in result["pair_accuracy"].items()
        if estimate["value"] is not None
    }
    over_optimised = result["over_optimisation"]
    falls = {name: parse_estimate(figures["fall"]) for name, figures in over_optimised.items()}
    size = result["num_samples"]
    title, axis = "Do more samples help?", f"change in accuracy from the best N to N={size}"
    return {
        **{key: report[key] for key in ("num_excluded", "num_unscored")},
        **{key: result[key] for key in ("num_problems", "num_samples")},
        "is_code": has_program_solutions(config),
        "choice": choice,
        "accuracy": _make_accuracy_rows(result, accuracy),
        "over_optimisation": [
            {
                "scorer": name,
                "best N": str(figures["best_size"]),
                f"N={size} vs best N": "-"
                if figures["best_size"] == size
                else format_difference(figures["fall"]),
                "problems fooled": report["num_fooled"][name],
            }
            for name, figures in over_optimised.items()
        ],
        "groups": _make_group_tables(result),
        "fooled": {
            name: report["fooled"][name][:MAX_FOOLED_SHOWN]
            for name in select_main_methods(report["fooled"])
        },
        "plots": {
            "choice": plot_accuracy_curves(
                "Choosing among samples", main_accuracy, size=(5.2, 3.8)
            ),
            "curves": plot_accuracy_curves("Accuracy by N", curve_accuracy),
            "falls": _plot_estimate_rows(title, axis, falls),
            "pairs": _plot_estimate_rows("Pairs ranked right", "share of pairs", pairs, (0, 1.02)),
        },
    }


def choose_main_results(result: Mapping[str, Any]) -> dict[str, Any]:
    """Choose the results for the head of the report, at the largest N.

    Reference scorers are left out. The scorer is the first one in the evaluation, with its first
    aggregation, because the gain of the best scorer on these problems would be overstated. The
    likelihood is the best one on these problems, so the scorer's gain over it is understated.
    """
    accuracy, size = result["accuracy"], str(result["num_samples"])
    methods = [
        method for method in accuracy if not is_reference(method, result.get("references", ()))
    ]
    likelihoods = [method for method in methods if method.startswith("likelihood:")]
    baselines = (MAJORITY, RANDOM, PASS, *likelihoods)
    scorers = [
        method for method in methods if method not in baselines and not method.startswith("vote:")
    ]
    scorer = next(iter(scorers), None)
    likelihood = max(likelihoods, key=lambda method: accuracy[method][size]["value"], default=None)
    differences = {} if scorer is None else result["differences"][size][scorer]
    reported_methods = (scorer, likelihood, MAJORITY, PASS)
    return {
        "scorer": scorer,
        "likelihood": likelihood,
        "methods": [
            method for method in (scorer, likelihood, MAJORITY, RANDOM) if method is not None
        ],
        "solved": {
            method: parse_estimate(accuracy[method][size])
            for method in reported_methods
            if method is not None
        },
        "gains": {
            method: parse_estimate(differences[method])
            for method in (MAJORITY, likelihood)
            if method in differences
        },
    }


def _make_accuracy_rows(
    result: Mapping[str, Any], accuracy: Mapping[str, Mapping[int, Estimate]]
) -> list[dict[str, Any]]:
    """Return each method's accuracy by N, and its difference to majority vote at the largest N."""
    rows = []
    for method, by_size in accuracy.items():
        last = max(by_size)
        difference = (
            None if method == PASS else result["differences"][str(last)][method].get(MAJORITY)
        )
        rows.append(
            {
                "method": method,
                **{f"N={size}": value for size, value in by_size.items()},
                f"N={last}: vs majority": ""
                if difference is None
                else format_difference(difference),
                "p-value": "" if difference is None else f"{difference['p_value']:.3f}",
            }
        )
    return rows


def _make_group_tables(result: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the accuracy at the largest N, by metadata field of the problems and its value."""
    methods = [RANDOM, MAJORITY, *select_main_methods(result["pair_accuracy"]), PASS]
    size = str(result["num_samples"])
    return {
        field_name.replace("_", " "): [
            {"": name, "problems": group["num_problems"]}
            | {method: group["accuracy"][method][size]["value"] for method in methods}
            for name, group in groups.items()
        ]
        for field_name, groups in result["groups"].items()
    }


def _plot_estimate_rows(
    title: str,
    label: str,
    estimates: Mapping[str, Estimate],
    x_range: tuple[float, float] | None = None,
) -> Plot:
    """Plot one estimate with its interval per row, highest first, and a vertical line at zero."""
    names = sorted(estimates, key=lambda name: -(estimates[name].value or 0.0))
    value, low, high = (
        [getattr(estimates[name], bound) for name in names] for bound in ("value", "low", "high")
    )
    zero = Series(name="", x=[0, 0], y=[-0.6, len(names) - 0.4], dash=":", is_thin=True)
    points = Series(name="", x=value, y=range(len(names)), low=low, high=high, kind="points", hue=0)
    return Plot(
        title=title,
        x_label=label,
        series=[zero, points],
        rows=names,
        size=(WIDTH, compute_plot_height(len(names))),
        x_range=x_range,
    )


def parse_estimate(content: Mapping[str, Any]) -> Estimate:
    """Restore an estimate from its JSON form."""
    return Estimate(**{bound: content[bound] for bound in ("value", "low", "high")})


def format_difference(content: Mapping[str, float]) -> str:
    """Return a difference with its interval as text, such as `+0.120 [+0.050, +0.190]`."""
    return f"{content['value']:+.3f} [{content['low']:+.3f}, {content['high']:+.3f}]"
