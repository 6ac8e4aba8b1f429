"""`mclabel quickstart --model smollm2:135m`: the quickstart with a real language model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from mclabel.core.config.load import find_bundled_config, load_config
from mclabel.core.records import Outcome
from mclabel.engines.hub import resolve_model
from mclabel.evaluate.best_of_n.show import make_best_of_n_grid
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import label
from mclabel.quickstart.toy import (
    Size,
    check_quickstart_outputs,
    compute_accuracy_differences,
    convert_estimates,
    record_duration,
    train_and_choose,
)
from mclabel.report.page.report import write_report
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.show.figures import render_rich_table
from mclabel.show.progress import job_progress
from mclabel.show.solutions import show_solution

LABEL_OVERRIDES: dict[Size, list[str]] = {
    "small": ["problems.limit=5", "solutions.per_problem=2", "estimator.rollouts=4"],
    "full": ["estimator.min_gain=0.05"],
}
EVALUATION_OVERRIDES: dict[Size, list[str]] = {
    "small": ["problems.limit=5", "samples=4"],
    "full": [],
}
SCORER_OVERRIDES: dict[str, list[str]] = {"prm": [], "orm": ["target=outcome"]}
"""For each scorer to train, by name, the overrides of configs/train/quickstart-smollm2.yaml."""
METHOD_NAMES = {
    "random": "random",
    "majority": "majority",
    "likelihood:policy:sum": "the model's likelihood",
    "orm": "ORM",
    "prm:last": "PRM, last step",
    "prm:product": "PRM, product",
    "vote:prm": "vote weighted by PRM",
    "pass": "some sample is right",
}
BASELINES = ("majority", "likelihood:policy:sum")


def run_real_quickstart(size: Size, out: Path, console: Console) -> dict[str, Any]:
    """Label word problems with SmolLM2-135M, train a PRM by LoRA, and choose answers with it.

    The same call resumes after an interruption. The function writes the same files as
    `run_quickstart`, except for figures and pictures that need the truth of every step.

    Args:
        size: `small` for a test, `full` for a first look. Both are too small to prove quality.
        out: folder for all results.
        console: console for progress, tables and messages.

    Raises:
        EngineError: the packages of the model are not installed.
    """
    run = out / "labels"
    check_quickstart_outputs(out, run, SCORER_OVERRIDES)
    resolve_model("smollm2:words")
    seconds: dict[str, float] = {}
    config = load_config(
        LabelConfig,
        find_bundled_config("label/quickstart-smollm2.yaml"),
        [f"out={run}", *LABEL_OVERRIDES[size]],
    )
    console.print(
        f"SmolLM2-135M writes {config.solutions.per_problem} solutions to each of "
        f"{config.problems.limit} word problems, and rollouts from their step prefixes "
        f"({config.estimator.summary}). A bundled LoRA adapter enables the model to solve such "
        "problems. The adapter was not trained on these stories.",
        highlight=False,
    )
    with record_duration(seconds, "label"), job_progress(console, "label") as job:
        label(config, job)
    rows = list(read_labels(Store(str(run))))
    console.print()
    wrong_row = next((row for row in rows if row.first_error), rows[0])
    show_solution(console, wrong_row)
    console.print(
        "\nTraining a PRM and an ORM by LoRA on these labels, then choosing among solutions of "
        "other problems.",
        highlight=False,
    )
    evaluation = train_and_choose(
        "quickstart-smollm2.yaml",
        SCORER_OVERRIDES,
        EVALUATION_OVERRIDES[size],
        out,
        run,
        console,
        seconds,
    )
    console.print()
    console.print(
        render_rich_table(make_best_of_n_grid(evaluation, METHOD_NAMES, against=BASELINES))
    )
    summary = {
        "model": "smollm2:words",
        "size": size,
        "seconds": {**seconds, "total": round(sum(seconds.values()), 1)},
        "policy_pass_at_1": sum(row.solution.outcome is Outcome.RIGHT for row in rows) / len(rows),
        "best_of_n_problems": evaluation.num_problems,
        "best_of_n": convert_estimates(evaluation.accuracy, lambda estimate: estimate.value),
        "best_of_n_intervals": convert_estimates(
            evaluation.accuracy, lambda estimate: [estimate.low, estimate.high]
        ),
        "best_of_n_minus_majority": compute_accuracy_differences(evaluation, "majority"),
    }
    (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    write_report([str(out)], str(out / "report.html"))
    console.print(
        f"\n{evaluation.num_problems} problems are too few to prove quality, as the wide intervals "
        "above show.\n\n"
        f"  labels    {run}\n"
        f"  PRM       {out}/prm\n"
        f"  figures   {out}/summary.json\n\n"
        "Next: your own model and problems, docs/labelling.md.\n\n"
        f"All of it on one page: {out}/report.html",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    return summary
