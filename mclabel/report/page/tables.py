"""The report's tables on labelling runs and trained scorers, as lists of rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.core.records import Outcome
from mclabel.evaluate.labels.show import QUALITY_ROWS
from mclabel.report.page.html import format_duration

Rows = list[dict[str, Any]]
"""Rows of a table, as values by column. The first column contains the names of the rows."""
_GROUP_FIGURES = {
    "first error found": "first_error_accuracy",
    "if there is an error": "first_error_accuracy_wrong",
    "precision": "precision",
    "recall": "recall",
    "false positives": "false_positive_rate",
    "lucky answers": "right_through_wrong",
}


def make_label_tables(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Make the tables on labelling runs, with one column or row for each run.

    Args:
        runs: results of `GatheredRun.facts`, one for each run.
    """
    qualities = {run["name"]: run["quality"] for run in runs if run["quality"] is not None}
    return {
        "short": [
            {
                "run": run["name"],
                "solutions": run["num_solutions"],
                "end right": run["shares"]["right"],
                "with an error": run["shares"]["with_error"],
                "rollout tokens a solution": round(run["cost"].tokens_per_solution),
                "first errors found": getattr(run["quality"], "first_error_accuracy", None),
                "if there is an error": getattr(run["quality"], "first_error_accuracy_wrong", None),
            }
            for run in runs
        ],
        "counts": make_comparison_rows(
            {run["name"]: _collect_counts_and_cost(run) for run in runs}
        ),
        "configuration": compare_configurations({run["name"]: run["config"] for run in runs}),
        "versions": make_comparison_rows({run["name"]: run["versions"] for run in runs}),
        "quality": make_comparison_rows(
            {
                name: {"problems": quality.num_problems, "solutions": quality.num_solutions}
                | {title.strip(): getattr(quality, key) for title, key in QUALITY_ROWS.items()}
                for name, quality in qualities.items()
            }
        ),
        "kinds": {
            f"{run['name']}: by {kind}" if len(runs) > 1 else f"By {kind}": _make_group_rows(
                kind, groups
            )
            for run in runs
            for key, groups in run["groups"].items()
            for kind in [key.replace("_", " ")]
        },
    }


def make_comparison_rows(columns: Mapping[str, Mapping[str, object]]) -> Rows:
    """Make rows that compare runs; rows without any value are left out.

    Args:
        columns: for each run, its values by name of the row.
    """
    names = dict.fromkeys(name for column in columns.values() for name in column)
    rows = [
        {"": name} | {run: values.get(name) for run, values in columns.items()} for name in names
    ]
    return [row for row in rows if any(row[run] is not None for run in columns)]


def compare_configurations(configs: Mapping[str, Mapping[str, object]]) -> Rows:
    """Make rows that compare the settings of runs, in alphabetical order of the settings.

    Args:
        configs: for each run, its settings by name.
    """
    texts = {
        run: {
            key: value if isinstance(value, str | int) else json.dumps(value)
            for key, value in sorted(config.items())
        }
        for run, config in configs.items()
    }
    return sorted(make_comparison_rows(texts), key=lambda row: str(row[""]))


def _collect_counts_and_cost(run: Mapping[str, Any]) -> dict[str, object]:
    """Return a run's counts of problems, solutions and steps, and the cost of its job."""
    tokens_per_solution, job = run["cost"].tokens_per_solution, run["job"]
    job_cost = {"time, GPU-hours, faults": "not recorded"}
    if job is not None:
        job_cost = {
            "starts of the job": job["num_starts"],
            "time": format_duration(job["elapsed_s"]),
            "GPU-hours": f"{job['gpu_hours']:,.2f}" if job["gpu_hours"] else "none",
            "engines lost and survived": job["num_failures"],
            "completions taken over after a kill": job["num_replayed"],
        }
    return {
        "problems": run["num_problems"],
        "solutions": run["num_solutions"],
        **{f"of them {name}": run["outcomes"][name] for name in Outcome},
        **{f"steps: {name}": count for name, count in run["steps"].items()},
        "kept": run["kept"] or None,
        "rollouts": run["num_rollouts"],
        "rollout tokens": f"{tokens_per_solution * run['num_solutions']:,.0f}",
        "rollout tokens a solution": f"{tokens_per_solution:,.0f}",
        "the same if no prefix were shared": f"{run['cost'].tokens_per_solution_unshared:,.0f}",
        "label sources": ", ".join(f"{name} {count:,}" for name, count in run["sources"].items()),
        **job_cost,
    }


def _make_group_rows(key: str, groups: Mapping[str, Mapping[str, Any]]) -> Rows:
    has_truth = any(group["quality"] for group in groups.values())
    figures = _GROUP_FIGURES if has_truth else {}
    return [
        {
            key: name,
            "problems": group["num_problems"],
            "solutions": group["num_solutions"],
            "right": group["outcomes"]["right"] / group["num_solutions"],
            "labelled with an error": group["num_with_error"] / group["num_solutions"],
            **{title: getattr(group["quality"], field, None) for title, field in figures.items()},
        }
        for name, group in groups.items()
    ]
