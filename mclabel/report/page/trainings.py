"""The report's parts on trainings of scorers, and on reinforcement learning of policies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mclabel.core.errors import DataError
from mclabel.report.page.choices import difference_text
from mclabel.rl.measure import compare_measurements
from mclabel.rl.training.record import MEASURED, read_log, read_measurements, read_samples
from mclabel.run.kinds import TRAINING, Run, read_json
from mclabel.run.shards.manifest import flat
from mclabel.show.figures import Plot, Series

MAX_SHOWN = 3
"""Maximum number of problems whose solutions before and after the training are shown."""
PLOTS: Mapping[str, tuple[str, str]] = {
    "pass_at_1": ("Right answers", "share of solutions"),
    "lucky": ("Right answers through wrong steps", "share of right answers"),
    "sound": ("Solutions without a wrong step", "share of solutions"),
    "pass_at_16": ("Problems solved by at least one of 16 samples", "share of problems"),
    "length": ("Length of a solution", "tokens"),
    "steps": ("Steps of a solution", "steps"),
    "prm_less_outcome": (
        "PRM scores compared with outcomes",
        "mean lowest score minus share of right answers",
    ),
    "kl": ("Distance from the initial policy", "KL divergence per token, nats"),
    "prm_brier": ("Error of the PRM on the policy's solutions", "Brier score of the lowest score"),
}
"""Title and y axis of the plot of each measured quantity, by its name in the measurements."""
LOGGED: Mapping[str, tuple[str, str]] = {
    "prm_less_outcome": (
        "PRM scores compared with outcomes, during training",
        "mean lowest score minus share of right answers",
    ),
    "kl": ("Distance from the initial policy, during training", "KL divergence per token, nats"),
    "entropy": ("Entropy per token", "nats"),
    "refused": ("Solutions without a reward because of their form", "share of solutions"),
}
"""Title and y axis of the plot of each logged quantity, by its name in the training log."""

_TRAINED_ON = {
    "num_solutions": "solutions trained on",
    "num_validation": "solutions held out for validation",
    "num_unlabeled": "solutions left out, without a label",
    "num_refused": "solutions left out, not encodable",
}
"""Names of counts in the report of a scorer's training, and their descriptions in the table."""

Curve = tuple[list[float], list[float]]
"""Optimizer steps at which a quantity was recorded, and its values at these steps."""


def policy_data(run: Run) -> dict[str, Any]:
    """Return a policy's training: right answers before and after, sampling and signs of hacking.

    Raises:
        DataError: a measurement cannot be read.
    """
    folder = Path(run.location)
    lines, measured = read_log(folder), read_measurements(folder)
    first, last = (measured[min(measured)], measured[max(measured)]) if measured else (None, None)
    is_compared = len(measured) > 1 and first is not None and last is not None
    totals = {
        name: sum(line.get(name, 0.0) for line in lines)
        for name in ("num_tokens", "num_value_tokens", "seconds_sampling", "seconds_credit")
    }
    samples = [read_samples(folder / MEASURED / f"{at}.samples.jsonl") for at in sorted(measured)]
    pairs = zip(samples[0], samples[-1], strict=False) if is_compared else ()
    return {
        "name": run.name,
        "before": first and first.pass_at(1),
        "after": last and last.pass_at(1),
        "num_problems": last and len(last.problems),
        "last_step": max(measured, default=None),
        "sampled": {
            "run": run.name,
            "steps": len(lines),
            "tokens": round(totals["num_tokens"]),
            "tokens for values": round(totals["num_value_tokens"]),
            "minutes sampling": f"{totals['seconds_sampling'] / 60:.1f}",
            "minutes of credit": f"{totals['seconds_credit'] / 60:.1f}",
        },
        "signs": [
            {
                "run": run.name,
                "figure": change.figure.words,
                "before": change.before,
                "after": change.after,
                "change": difference_text(asdict(change.change)),
                "a sign that the reward is hacked": "yes" if change.is_bad else "no",
            }
            for change in (
                compare_measurements(first, last).values() if first and last and is_compared else ()
            )
        ],
        # Solutions to the same problems before and after; changed outcomes come first.
        "pairs": sorted(pairs, key=lambda pair: pair[0]["outcome"] == pair[1]["outcome"])[
            :MAX_SHOWN
        ],
    }


def policy_plots(runs: Sequence[Run]) -> dict[str, Plot]:
    """Return the plots of the measurements and of the logs, with one colour per run."""
    measured = {
        run.name: _curves(
            {"step": step, **one.summary()}
            for step, one in sorted(read_measurements(Path(run.location)).items())
        )
        for run in runs
    }
    logged = {run.name: _curves(read_log(Path(run.location))) for run in runs}
    return {
        f"{prefix}-{name}": _plot(title, axis, curves)
        for prefix, source, plots in (("rl", measured, PLOTS), ("rl-log", logged, LOGGED))
        for name, (title, axis) in plots.items()
        if (curves := {run: by_name[name] for run, by_name in source.items() if name in by_name})
    }


def _curves(lines: Iterable[Mapping[str, float]]) -> dict[str, Curve]:
    """Return the curve of each quantity in the lines of a log, by its name."""
    by_name: dict[str, Curve] = {}
    for line in lines:
        for name, value in line.items():
            steps, values = by_name.setdefault(name, ([], []))
            steps.append(line["step"])
            values.append(value)
    return by_name


def _plot(title: str, axis: str, curves: Mapping[str, Curve]) -> Plot:
    series = [
        Series(name=name, x=steps, y=values, hue=hue)
        for hue, (name, (steps, values)) in enumerate(curves.items())
    ]
    return Plot(title=title, x_label="optimizer step", y_label=axis, series=series)


def scorer_data(run: Run) -> dict[str, Any]:
    """Return a training's data counts, validation metrics and configuration.

    Counts and metrics are missing until the training has ended.
    """
    report = read_json(run.store, "model/report.json") or {}
    config = flat((read_json(run.store, TRAINING) or {}).get("config", {}))
    validation = report.get("validation") or {}
    auc = validation.get("auc")
    return {
        "num_solutions": report.get("num_solutions"),
        "auc": auc if isinstance(auc, float) else None,
        "figures": {words: report.get(name) for name, words in _TRAINED_ON.items()}
        | {
            f"validation: {name.replace('num_', '').replace('_', ' ')}": value
            for name, value in validation.items()
            if name != "num_solutions" and value
        },
        "config": config,
    }


def loss_plot(runs: Sequence[Run]) -> Plot:
    """Return the plot of the training loss, with one colour per scorer."""
    curves = {run.name: _curves(e for e in _log(run) if "loss" in e).get("loss") for run in runs}
    nonempty = {name: curve for name, curve in curves.items() if curve}
    return _plot("Training loss", "loss, mean of ten steps", nonempty)


def _log(run: Run) -> list[dict[str, Any]]:
    raw = run.store.read("log.jsonl") or b""
    try:
        return [json.loads(line) for line in raw.splitlines() if line.strip()]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{run.location}/log.jsonl: not valid JSON lines ({error})") from error
