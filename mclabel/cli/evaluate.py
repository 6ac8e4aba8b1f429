"""The verbs of `mclabel eval`: best of N, labels, ProcessBench."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from mclabel.cli.options import SEED, Share, configuration
from mclabel.cli.output import console, errors

if TYPE_CHECKING:
    from mclabel.report.terminal.grid import Grid

PIPE_WIDTH = 160  # where there is no terminal that tables must fit

_FORMAT = click.option(
    "--format",
    "shape",
    type=click.Choice(["table", "md", "json"]),
    default="table",
    show_default=True,
)
_TRUST = click.option(
    "--trust-remote-code", is_flag=True, help="Run Python code that comes with the model."
)
_SEED = click.option("--seed", default=0, show_default=True, type=SEED, help="Of the bootstrap.")


@click.group(name="eval")
def evaluate() -> None:
    """Measure PRMs and labels."""


@evaluate.command(name="best-of-n")
@configuration("BestOfNConfig")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json"]),
    default="table",
    help="Of output.",
)
def best_of_n(config: str, overrides: tuple[str, ...], allow: tuple[str, ...], form: str) -> None:
    """Choose among N sampled solutions by every method, and compare.

    CONFIG is a YAML file; every key can be overridden, e.g. samples=64. Writes best_of_n.json and
    the plot under the folder `out`. Running the same command again resumes.
    """
    from mclabel import pipelines
    from mclabel.config import BestOfNConfig, load_config
    from mclabel.report.terminal.job_progress import EvaluationProgress
    from mclabel.report.terminal.markdown import to_markdown
    from mclabel.report.terminal.solutions import (
        best_of_n_table,
        group_table,
        over_optimisation_table,
    )

    checked = load_config(BestOfNConfig, config, overrides, allow=allow)
    with EvaluationProgress(console if form == "table" else errors) as progress:
        report = pipelines.best_of_n(
            checked, on_state=progress.on_state, on_score=progress.on_score
        )
    if form == "json":
        click.echo(json.dumps(asdict(report), indent=1))
        return
    for table in (
        best_of_n_table(report.result),
        group_table(report.result),
        over_optimisation_table(report.result, report.num_fooled),
    ):
        if table is not None and form == "md":
            click.echo(to_markdown(table))
        elif table is not None:
            console.print(table)
    if form == "md":
        return
    if report.num_excluded or report.num_unscored:
        console.print(
            f"{report.num_excluded} problems left out (trained on); {report.num_unscored} samples "
            "could not be scored.",
            highlight=False,
        )
    console.print(f"Figures: {checked.out}/best_of_n.json, plot: {checked.out}/best_of_n.png")


@evaluate.command(name="labels")
@click.argument("shards")
@click.option(
    "--truth",
    help="arith, processbench:FILE, prm800k:FILE or run:FOLDER; by default arith's where the "
    "problems are of that domain.",
)
@_FORMAT
@click.option("-o", "--out", help="Folder for labels.json, labels.md and plots (PNG and SVG).")
@_SEED
def eval_labels(shards: str, truth: str | None, shape: str, out: str | None, seed: int) -> None:
    """Measure the labels of a run against exact truth, human labels or another run.

    First errors and wrong steps, calibration, intervals (against another run's rollouts), values
    along solutions, rising labels and cost; 95% intervals by bootstrap over problems; groups of
    problems as rows of their own.
    """
    from mclabel.pipelines.eval_labels import evaluate_labels
    from mclabel.report.terminal.label_tables import label_grids

    report = evaluate_labels(shards, truth, out, seed=seed)
    _print_figures(report, label_grids(report), shape)
    if out is not None:
        errors.print(f"Figures and plots: {out}", highlight=False, markup=False)


@evaluate.command(name="processbench")
@click.argument("files", nargs=-1, required=True)
@click.option("--model", help="Folder of a PRM.")
@click.option("--labels", "run", help="A run that labelled ProcessBench's solutions.")
@click.option("--threshold", type=Share(), help="Of the PRM's scores; by default chosen on gsm8k.")
@click.option("--device", default="cpu", show_default=True)
@_TRUST
@_FORMAT
@click.option("-o", "--out", help="Folder for figures, predictions and what is left out.")
@_SEED
def eval_processbench(
    files: tuple[str, ...],
    model: str | None,
    run: str | None,
    threshold: float | None,
    device: str,
    trust_remote_code: bool,
    shape: str,
    out: str | None,
    seed: int,
) -> None:
    """Find first wrong steps on ProcessBench, by a PRM or by the labels of a run.

    FILES are its splits (processbench_gsm8k.jsonl, math.json, ...). The official F1 of each split
    and their mean.
    """
    if (model is None) == (run is None):
        raise click.UsageError("give --model or --labels")
    if run is not None and threshold is not None:
        raise click.UsageError("--threshold goes with --model: labels say themselves what is wrong")
    from mclabel.pipelines.processbench import processbench_of_labels, processbench_of_prm
    from mclabel.report.terminal.job_progress import StageProgress
    from mclabel.report.terminal.processbench_table import processbench_grid

    if run is not None:
        result = processbench_of_labels(files, run, out=out, seed=seed)
    else:
        assert model is not None
        with StageProgress(errors, "score", "distinct solutions") as progress:
            result = processbench_of_prm(
                files,
                model,
                threshold=threshold,
                device=device,
                out=out,
                seed=seed,
                on_score=progress.update,
                trust_remote_code=trust_remote_code,
            )
    _print_figures(result, [processbench_grid(result)], shape)


@evaluate.command(name="processbench-golds")
@click.argument("files", nargs=-1, required=True)
@click.option("--golds", multiple=True, help="File of problems with answers, or hf:NAME.")
@click.option("-o", "--out", required=True, help="JSONL file to write.")
def processbench_golds(files: tuple[str, ...], golds: tuple[str, ...], out: str) -> None:
    """Make ProcessBench's solutions ready to be labelled: join the gold answers.

    The file serves as problems.source and as solutions.path of `mclabel label`. Problems that no
    file of golds holds take the boxed answer of a solution that is marked as right.
    """
    from mclabel.pipelines.processbench_golds import join_golds

    report = join_golds(files, golds, out)
    without = f"; {len(report.without)} left out without a gold, the first being " + (
        report.without[0] if report.without else ""
    )
    console.print(
        f"{report.num_from_files} solutions with a gold from files, {report.num_from_solutions} "
        f"from right solutions{without if report.without else ''}. Written to {out}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _print_figures(figures: Any, grids: Sequence[Grid], shape: str) -> None:
    from mclabel.report.files import json_text
    from mclabel.report.terminal.grid import markdown, rich_table

    if shape == "table":
        screen = console if console.is_terminal else Console(emoji=False, width=PIPE_WIDTH)
        for grid in grids:
            screen.print(rich_table(grid))
    else:
        click.echo(json_text(figures) if shape == "json" else markdown(grids), nl=False)
