"""`mclabel report`: one HTML file on the quality of labels, trained models and evaluations.

The file needs no network and no server. Templates draw the same data that `mclabel report --json`
prints.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from mclabel.core.errors import ConfigError
from mclabel.report.page.charts import plot_labelling_runs
from mclabel.report.page.choices import collect_evaluation_data
from mclabel.report.page.example import convert_trees_to_page_data
from mclabel.report.page.facts import GatheredRun, compute_agreement
from mclabel.report.page.html import render_page
from mclabel.report.page.tables import (
    compare_configurations,
    make_comparison_rows,
    make_label_tables,
)
from mclabel.report.page.trainings import collect_scorer_data, plot_training_loss
from mclabel.run.kinds import Run, find_runs
from mclabel.run.outputs import prepare_output_file


def write_report(locations: Sequence[str], out: str) -> dict[str, Any]:
    """Write the report.

    Args:
        locations: outputs of `mclabel label`, `eval best-of-n` and `train`, or folders that
            contain such outputs.
        out: HTML file to write; an existing file is replaced.

    Returns:
        The data that the page shows, and the path of the page as `path`.

    Raises:
        ShardError: a location is not a run, or was written by another version.
        ConfigError: `out` cannot be written.
    """
    runs = find_runs(locations)
    path = prepare_output_file(out, "-o ")
    data = collect_report_data(runs)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_text(render_page(data), encoding="utf-8", errors="backslashreplace")
        partial.replace(path)
    except OSError as error:
        raise ConfigError(f"-o {out}: cannot be written ({error.strerror})") from error
    return {"path": str(path), **data}


def collect_report_data(runs: Sequence[Run]) -> dict[str, Any]:
    """Collect all data that the page shows."""
    labelled, evaluations, trained = (
        [run for run in runs if run.kind == kind] for kind in ("labels", "best_of_n", "prm")
    )
    gathered = [GatheredRun(run) for run in labelled]
    labels = [run.compute_facts() for run in gathered]
    trees = {run.name: convert_trees_to_page_data(run.store) for run in labelled}
    scorers = {run.name: collect_scorer_data(run) for run in trained}
    return {
        "runs": [run.name for run in runs],
        "labels": labels,
        "tables": make_label_tables(labels),
        "label_plots": plot_labelling_runs(gathered, labels) if labels else {},
        "agreement": compute_agreement(gathered),
        "trees": {name: run_trees for name, run_trees in trees.items() if run_trees},
        "evaluations": {run.name: collect_evaluation_data(run) for run in evaluations},
        "scorers": scorers,
        "scorer_figures": make_comparison_rows(
            {name: scorer["figures"] for name, scorer in scorers.items()}
        ),
        "scorer_settings": compare_configurations(
            {name: scorer["config"] for name, scorer in scorers.items()}
        ),
        "loss_plot": plot_training_loss(trained),
    }
