"""The report's parts on trainings of scorers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mclabel.core.errors import DataError
from mclabel.run.kinds import TRAINING, Run, read_checked_json
from mclabel.run.shards.manifest import flatten_config
from mclabel.show.figures import Plot, Series

_COUNT_DESCRIPTIONS = {
    "num_solutions": "solutions trained on",
    "num_validation": "solutions held out for validation",
    "num_unlabeled": "solutions left out, without a label",
    "num_refused": "solutions left out, not encodable",
}
"""Names of counts in the report of a scorer's training, and their descriptions in the table."""


def collect_scorer_data(run: Run) -> dict[str, Any]:
    """Return a training's data counts, validation metrics and configuration.

    Counts and metrics are missing until the training has ended.
    """
    report = read_checked_json(run.store, "model/report.json") or {}
    config = flatten_config((read_checked_json(run.store, TRAINING) or {}).get("config", {}))
    validation = report.get("validation") or {}
    auc = validation.get("auc")
    return {
        "num_solutions": report.get("num_solutions"),
        "auc": auc if isinstance(auc, float) else None,
        "figures": {
            description: report.get(name) for name, description in _COUNT_DESCRIPTIONS.items()
        }
        | {
            f"validation: {name.replace('num_', '').replace('_', ' ')}": value
            for name, value in validation.items()
            if name != "num_solutions" and value
        },
        "config": config,
    }


def plot_training_loss(runs: Sequence[Run]) -> Plot:
    """Return the plot of the training loss, with one colour per scorer."""
    logs = {run.name: [line for line in _read_training_log(run) if "loss" in line] for run in runs}
    return Plot(
        title="Training loss",
        x_label="optimizer step",
        y_label="loss, mean of ten steps",
        series=[
            Series(
                name=name,
                x=[line["step"] for line in lines],
                y=[line["loss"] for line in lines],
                hue=hue,
            )
            for hue, (name, lines) in enumerate(
                (name, lines) for name, lines in logs.items() if lines
            )
        ],
    )


def _read_training_log(run: Run) -> list[dict[str, Any]]:
    content = run.store.read("log.jsonl") or b""
    try:
        return [json.loads(line) for line in content.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{run.location}/log.jsonl: not valid JSON lines ({error})") from error
