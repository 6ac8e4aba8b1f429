"""The subcommands of `mclabel eval`, which measure best-of-N methods, labels, and judgements on
ProcessBench.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from mclabel.cli.options import SEED, UnitIntervalType, add_configuration_arguments
from mclabel.cli.output import (
    EXIT_NOTHING,
    add_json_option,
    console,
    errors,
    fail,
    print_lines,
    print_num_rejected,
    record_json_result,
)

if TYPE_CHECKING:
    from mclabel.show.figures import Grid

_FORMAT = click.option(
    "--format",
    "table_format",
    type=click.Choice(["table", "md"]),
    default="table",
    show_default=True,
    help="Format of the printed tables.",
)
_TRUST = click.option(
    "--trust-remote-code",
    is_flag=True,
    help=("Allow Python code that comes with the model to run."),
)
_SEED = click.option(
    "--seed", default=0, show_default=True, type=SEED, help=("Random seed of the bootstrap.")
)

_STRICT = click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row of FILES that cannot be used. By default such rows are left out "
    "and reported.",
)


@click.group(name="eval")
def evaluate() -> None:
    """Measure PRMs, labels and search methods."""


@evaluate.command(name="best-of-n")
@add_configuration_arguments("mclabel.evaluate.best_of_n.config:BestOfNConfig")
@_FORMAT
@add_json_option
def best_of_n(
    config: str, overrides: tuple[str, ...], allow: tuple[str, ...], table_format: str
) -> None:
    """Compare methods that choose among N solutions.

    CONFIG is a YAML file, such as configs/eval/own-prm.yaml, which comes with mclabel. Its keys can
    be overridden, such as samples=64. The command writes best_of_n.json and a plot to the folder
    `out`. Running it again resumes an interrupted run.
    """
    from mclabel.core.config.load import load_config
    from mclabel.evaluate.best_of_n.config import BestOfNConfig
    from mclabel.evaluate.best_of_n.job import best_of_n as run_best_of_n
    from mclabel.evaluate.best_of_n.show import (
        make_best_of_n_grid,
        make_group_grid,
        make_over_optimisation_grid,
    )
    from mclabel.show.progress import EvaluationProgress

    checked = load_config(BestOfNConfig, config, overrides, allow=allow)
    with EvaluationProgress(console if table_format == "table" else errors) as progress:
        report = run_best_of_n(checked, on_state=progress.on_state, on_score=progress.on_score)
    print_num_rejected(
        report.num_rejected, "rows or problems have no samples", f"{checked.out}/samples"
    )
    grids = (
        make_best_of_n_grid(report.result),
        make_group_grid(report.result),
        make_over_optimisation_grid(report.result, report.num_fooled),
    )
    _print_figures(
        {"out": checked.out, **asdict(report)}, [g for g in grids if g.rows], table_format
    )
    if table_format == "table":
        counts = {
            "problems left out (trained on)": report.num_excluded,
            "problems left out (fewer solutions than samples)": report.num_too_few,
            "samples could not be scored": report.num_unscored,
            "samples could not be graded": report.num_ungraded,
        }
        if summary := "; ".join(f"{count:,} {noun}" for noun, count in counts.items() if count):
            console.print(f"{summary}.", highlight=False)
        console.print(f"Figures: {checked.out}/best_of_n.json, plot: {checked.out}/best_of_n.png")
    if report.no_result_message is not None:
        fail(report.no_result_message, EXIT_NOTHING)


@evaluate.command(name="labels")
@click.argument("shards")
@click.option(
    "--truth",
    help="Truth to compare with: exact, processbench:FILE or FILE, prm800k:FILE, run:FOLDER or "
    "the folder of `mclabel annotate`. "
    "The default is exact, for problems of arith and pyarith.",
)
@_FORMAT
@add_json_option
@click.option("-o", "--out", help="Folder for labels.json, labels.md and plots (PNG and SVG).")
@_SEED
@click.option(
    "--width",
    type=UnitIntervalType(),
    help="Desired width of the interval of the share of first errors labelled right, such as 0.1. "
    "The command then prints about how many more solutions need a truth.",
)
def eval_labels(
    shards: str,
    truth: str | None,
    table_format: str,
    out: str | None,
    seed: int,
    width: float | None,
) -> None:
    """Measure labels against truth, people or another run.

    SHARDS is the folder or URL of a run of `mclabel label`.

    The tables show first errors, wrong steps, calibration, interval coverage (against another run's
    rollouts), values along solutions, labels that rise after an error, and cost. Figures have 95%
    intervals by bootstrap over problems, and tables have a row for each group of problems.
    """
    from mclabel.evaluate.labels.job import check_interval_width, evaluate_labels, explain_narrowing
    from mclabel.evaluate.labels.tables import make_label_grids

    check_interval_width(width)
    report = evaluate_labels(shards, truth, out, seed=seed)
    _print_figures(report, make_label_grids(report), table_format)
    if width is not None:
        errors.print(
            explain_narrowing(report, width), highlight=False, markup=False, soft_wrap=True
        )
    if out is not None:
        errors.print(f"Figures and plots: {out}", highlight=False, markup=False)


@evaluate.command(name="processbench")
@click.argument("files", nargs=-1, required=True)
@click.option("--model", help="Folder of a PRM.")
@click.option(
    "--labels",
    "run",
    help=("Folder or URL of a run of `mclabel label` on ProcessBench's solutions."),
)
@click.option(
    "--opinions",
    multiple=True,
    metavar="RUN",
    help="Folder or URL of a run of `mclabel judge` over one of the files. The prediction "
    "is the first error that the judge names. A judge that only claims an error at or "
    "before a step (symbolic) predicts that step, or no error if it claims none. Can "
    "be repeated: with several runs on one file, only solutions on which all judges agree count.",
)
@click.option(
    "--threshold",
    type=UnitIntervalType(),
    help=(
        "Score in [0, 1] below which a step counts as wrong. By default, the threshold is chosen "
        "on the split gsm8k."
    ),
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="PyTorch device that computes the scores, such as cpu or cuda; auto takes cuda if this "
    "machine has a GPU.",
)
@_TRUST
@_FORMAT
@add_json_option
@click.option(
    "-o", "--out", help=("Folder for metrics, predictions and the solutions that were left out.")
)
@_SEED
@_STRICT
def eval_processbench(
    files: tuple[str, ...],
    model: str | None,
    run: str | None,
    opinions: tuple[str, ...],
    threshold: float | None,
    device: str,
    trust_remote_code: bool,
    table_format: str,
    out: str | None,
    seed: int,
    strict: bool,
) -> None:
    """Measure PRMs, labels or judges on ProcessBench.

    The task is to find the first wrong step of each solution. FILES are the splits of ProcessBench
    (processbench_gsm8k.jsonl, math.json, ...). The command prints the official F1 of each split and
    the mean F1.
    """
    if [model is None, run is None, not opinions].count(False) != 1:
        raise click.UsageError("give either --model or --labels or --opinions")
    if model is None and threshold is not None:
        raise click.UsageError(
            "--threshold works only with --model, because labels and opinions already "
            "decide which steps are wrong. Remove --threshold"
        )
    from mclabel.evaluate.processbench.figures import make_processbench_grid
    from mclabel.evaluate.processbench.job import (
        measure_labels_on_processbench,
        measure_prm_on_processbench,
    )
    from mclabel.evaluate.processbench.opinions import measure_opinions_on_processbench
    from mclabel.show.progress import StageProgress

    if opinions:
        figures = measure_opinions_on_processbench(
            files, opinions, out=out, seed=seed, strict=strict
        )
    elif run is not None:
        figures = measure_labels_on_processbench(files, run, out=out, seed=seed, strict=strict)
    else:
        assert model is not None
        with StageProgress(errors, "score", "distinct solutions") as progress:
            figures = measure_prm_on_processbench(
                files,
                model,
                threshold=threshold,
                device=device,
                out=out,
                seed=seed,
                on_score=progress.update,
                trust_remote_code=trust_remote_code,
                strict=strict,
            )
    _print_figures(figures, [make_processbench_grid(figures)], table_format)


@evaluate.command(name="processbench-golds")
@click.argument("files", nargs=-1, required=True)
@click.option(
    "--golds", multiple=True, help=("File of problems with answers, or hf:NAME. Can be repeated.")
)
@click.option("-o", "--out", required=True, help="JSONL file to write.")
@_STRICT
@add_json_option
def processbench_golds(
    files: tuple[str, ...], golds: tuple[str, ...], out: str, strict: bool
) -> None:
    """Add gold answers to ProcessBench, for labelling.

    Use the written file as both problems.source and solutions.path of `mclabel label`. A problem
    without a gold answer in --golds takes the boxed answer of a solution that is marked as right.
    """
    from mclabel.data.readers.rows import describe_row_place
    from mclabel.evaluate.processbench.job import add_golds_to_files

    report = add_golds_to_files(files, golds, out, strict=strict)
    record_json_result({"out": out, **asdict(report)})
    for reject in report.rejects:
        errors.print(
            f"{describe_row_place(str(reject.source), reject.row or 0)}, left out: {reject.detail}",
            style="yellow",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    missing_note = f"; {len(report.ids_without_gold)} left out without a gold, the first being " + (
        report.ids_without_gold[0] if report.ids_without_gold else ""
    )
    print_lines(
        f"{report.num_from_files} solutions with a gold from files, {report.num_from_solutions} "
        f"from right solutions{missing_note if report.ids_without_gold else ''}. Written to {out}",
    )


def _print_figures(figures: Any, grids: Sequence[Grid], table_format: str) -> None:
    from mclabel.show.figures import MAX_WIDTH, render_markdown, render_rich_table

    if record_json_result(figures):
        return
    if table_format == "table":
        output_console = console if console.is_terminal else Console(emoji=False, width=MAX_WIDTH)
        for grid in grids:
            output_console.print(render_rich_table(grid), "")
    else:
        click.echo(render_markdown(grids), nl=False)
