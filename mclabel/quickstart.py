"""`mclabel quickstart`: the main job on the bundled domain, measured against exact truth."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from mclabel import edge
from mclabel.config import LabelConfig, bundled_config, load_config
from mclabel.data.shards import read_labels
from mclabel.data.store import Store
from mclabel.evaluation.label_quality import (
    LabelCost,
    LabelQuality,
    arith_truth,
    by_meta,
    label_cost,
    label_quality,
)
from mclabel.labeling.progress import StageProgress, job_progress
from mclabel.report.picture import draw_labels
from mclabel.report.terminal import quality_table, show_solution

Size = Literal["small", "full"]

OVERRIDES: dict[Size, list[str]] = {
    "small": ["problems.limit=16", "estimator.rollouts=8", "block_problems=4"],
    "full": [],
}
_MEASURED = (
    "first_error_accuracy",
    "first_error_accuracy_wrong",
    "precision",
    "recall",
    "f1",
    "false_positive_rate",
    "right_through_wrong",
)


def run_quickstart(size: Size, out: Path, console: Console) -> dict[str, Any]:
    """Label arith problems with the bundled policy and measure the labels.

    Run again after an interruption, it resumes. Writes `labels/` (the run), `labels.png` and
    `summary.json` under `out`; returns what summary.json holds.

    Args:
        size: `small` for a first look or a test, `full` for figures worth reading.
        out: folder for all results.
        console: progress, tables and messages go there.
    """
    run = out / "labels"
    config = load_config(
        LabelConfig,
        bundled_config("label/quickstart.yaml"),
        [f"out={run}", *OVERRIDES[size]],
    )
    seconds: dict[str, float] = {}
    console.print(
        f"Sampling {config.solutions.per_problem} solutions of each of {config.problems.limit} "
        f"problems, and {config.estimator.rollouts} rollouts from every step prefix.",
        highlight=False,
    )
    with _timed(seconds, "label"), job_progress(console, "label") as progress:
        edge.label(config, progress)
    with _timed(seconds, "measure"), StageProgress(console, "measure", "tables") as stage:
        rows = list(read_labels(Store(str(run))))
        groups = {"all": rows, **by_meta(rows, "answer_type")}
        quality: dict[str, LabelQuality] = {}
        for number, (name, group) in enumerate(groups.items(), 1):
            quality[name] = label_quality(group)
            stage.update(number, len(groups))
        cost = label_cost(rows)
    with _timed(seconds, "picture"), StageProgress(console, "picture", "files") as stage:
        draw_labels(rows, out / "labels.png")
        stage.update(1, 1)
    summary = _summary(size, seconds, quality, cost)
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    console.print()
    wrong = next((row for row in rows if row.first_error), rows[0])
    show_solution(console, wrong, arith_truth(wrong))
    console.print(quality_table(quality))
    _say_what_next(console, out, run)
    return summary


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    seconds[stage] = round(time.monotonic() - started, 1)


def _summary(
    size: Size, seconds: dict[str, float], quality: dict[str, LabelQuality], cost: LabelCost
) -> dict[str, Any]:
    overall = quality["all"]
    return {
        "size": size,
        "seconds": {**seconds, "total": round(sum(seconds.values()), 1)},
        "policy_pass_at_1": overall.pass_at_1.value,
        "policy_pass_at_1_interval": [overall.pass_at_1.low, overall.pass_at_1.high],
        "labels": {
            **_figures(overall),
            **asdict(cost),
            "by_answer_type": {k: _figures(q) for k, q in quality.items() if k != "all"},
        },
    }


def _figures(quality: LabelQuality) -> dict[str, Any]:
    estimates = {name: getattr(quality, name) for name in _MEASURED}
    return {
        "problems": quality.num_problems,
        "solutions": quality.num_solutions,
        "left_out": quality.num_left_out,
        **{name: estimate.value for name, estimate in estimates.items()},
        "intervals": {name: [e.low, e.high] for name, e in estimates.items()},
    }


def _say_what_next(console: Console, out: Path, run: Path) -> None:
    console.print(
        f"\n  labels    {run}/labels/*.parquet (rollouts beside them)\n"
        f"  picture   {out}/labels.png\n"
        f"  figures   {out}/summary.json\n\n"
        "Next:\n"
        f"  mclabel show {run} --wrong        solutions with their step values\n"
        f"  mclabel labels {run}              counts, cost, quality\n"
        f"  mclabel label configs/label/arith-bisect.yaml out={out}/bisect\n"
        "                                    the same problems by binary search\n",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
