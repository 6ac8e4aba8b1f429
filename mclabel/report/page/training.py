"""The report's part on training: what scorers were trained on, and how the loss went."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.core.errors import DataError
from mclabel.report.page.html import Html, figure, join, table, tag
from mclabel.run.kinds import TRAINING, Run, flat, read_json
from mclabel.show.plots import Plot, Series


def read_training(run: Run) -> Mapping[str, Any]:
    """What a training reports of its data and its validation; empty before it has ended."""
    return read_json(run.store, "model/report.json") or {}


def training_part(runs: Sequence[Run]) -> Html:
    """Everything about some trainings, side by side."""
    manifests = [read_json(run.store, TRAINING) or {} for run in runs]
    reports = [read_training(run) for run in runs]
    configs = [flat(manifest.get("config", {})) for manifest in manifests]
    head = ["", *(run.name for run in runs)]
    rows: list[list[object]] = [
        [name.replace("num_", "").replace("_", " "), *(setting(r.get(name, "-")) for r in reports)]
        for name in ("num_solutions", "num_validation", "num_unlabeled", "num_refused")
    ]
    validation = [report.get("validation", {}) for report in reports]
    rows += [
        [
            f"validation: {name.replace('num_', '').replace('_', ' ')}",
            *(setting(v.get(name, "-")) for v in validation),
        ]
        for name in dict.fromkeys(key for found in validation for key in found)
        if name != "num_solutions"
    ]
    keys = sorted({key for config in configs for key in config})
    differs = [len({str(config.get(key)) for config in configs}) > 1 for key in keys]
    settings = [[key, *(setting(config.get(key, "-")) for config in configs)] for key in keys]
    return join(
        table(head, rows, caption="What the scorers were trained on, and how they do"),
        _losses(runs),
        tag(
            "details",
            tag("summary", "Configuration"),
            table(head, settings, caption="Configuration", marked=differs),
        ),
    )


def _losses(runs: Sequence[Run]) -> Html:
    series, rows = [], list[list[object]]()
    for hue, run in enumerate(runs):
        points = [(e["step"], e["loss"]) for e in _log(run) if "loss" in e]
        if not points:
            continue
        steps, losses = (list(column) for column in zip(*points, strict=True))
        series.append(Series(name=run.name, x=steps, y=losses, hue=hue))
        rows.append([run.name, steps[-1], f"{losses[0]:.4f}", f"{losses[-1]:.4f}"])
    if not series:
        return Html("")
    plot = Plot(
        title="Training loss",
        x_label="optimizer step",
        y_label="loss, mean of ten steps",
        series=series,
    )
    head = ["scorer", "steps", "first", "last"]
    return figure("losses", plot, table(head, rows, caption="Training loss"))


def _log(run: Run) -> list[dict[str, Any]]:
    raw = run.store.read("log.jsonl") or b""
    try:
        return [json.loads(line) for line in raw.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{run.location}/log.jsonl: not valid JSON lines ({error})") from error


def setting(content: object) -> str:
    """A value of a configuration as a cell."""
    if isinstance(content, float):
        return f"{content:.4g}"
    return content if isinstance(content, str) else json.dumps(content)
