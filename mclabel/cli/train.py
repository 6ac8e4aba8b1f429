"""The verbs of PRMs and of label formats: `train`, `score`, `serve`, `export`, `import`."""

from __future__ import annotations

import click

from mclabel.cli.options import configuration
from mclabel.cli.output import console
from mclabel.data.exchange import FORMATS, PARQUET
from mclabel.prm.scoring.scorer import FORMATS as PRM_FORMATS
from mclabel.prm.scoring.scorer import OWN_FORMAT


@click.command()
@configuration("TrainConfig")
@click.option("--preflight", "look", is_flag=True, help="Look at the data, train nothing.")
def train(config: str, overrides: tuple[str, ...], look: bool) -> None:
    """Train a PRM or an ORM on labels.

    CONFIG is a YAML file; every key can be overridden, e.g. target=soft. Running the same command
    again resumes. --preflight prints three examples token by token with their labels.
    """
    from mclabel import pipelines
    from mclabel.config import TrainConfig, load_config
    from mclabel.pipelines.train import preflight
    from mclabel.report.job_progress import StageProgress

    checked = load_config(TrainConfig, config, overrides)
    if look:
        found = preflight(checked)
        for line in found.lines(examples=True):
            click.echo(line)
        found.check_differ()
        return

    with StageProgress(console, "train", "steps") as progress:
        report = pipelines.train(
            checked,
            lambda step, total, loss: progress.update(step, total, detail=loss),
            lambda found: click.echo("\n".join(found.lines(examples=False))),
        )
    console.print(
        f"Trained on {report.num_solutions} solutions, {report.num_validation} kept for "
        "validation.",
        highlight=False,
    )
    for name, figure in report.validation.items():
        value = "-" if figure is None else f"{figure:.4g}"
        console.print(f"  validation {name.replace('_', ' ')}: {value}", highlight=False)
    console.print(f"Model: {report.model}. Score with it: mclabel score {checked.out} FILE")


def _formats(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Names that a shell completes."""
    from mclabel.data.exchange.formats import format_names

    names = [PARQUET, *format_names()] if parameter.name == "to" else format_names()
    return [name for name in names if name.startswith(incomplete)]


@click.command(name="export")
@click.argument("run")
@click.option(
    "--to",
    required=True,
    metavar="NAME",
    shell_complete=_formats,
    help=f"{PARQUET}, {', '.join(FORMATS)}, one of another package, or module:Class of your own.",
)
@click.option("-o", "--out", required=True, help="Folder for the data and its card.")
@click.option("--push-to-hub", help="Upload the folder to this data set of the Hugging Face Hub.")
def export_labels(run: str, to: str, out: str, push_to_hub: str | None) -> None:
    """Write a run's labels as plain Parquet, or in the format of TRL, Math-Shepherd, and others.

    `parquet` has all labels and rollouts, whatever was compacted. Of other formats it is said what
    they cannot hold, and how many solutions were left out.
    """
    from mclabel import pipelines

    report: pipelines.ExportReport | pipelines.TablesReport
    if to == PARQUET:
        report = pipelines.export_tables(run, out, push_to_hub=push_to_hub)
    else:
        report = pipelines.export_run(run, to, out, push_to_hub=push_to_hub)
    for line in report.lines():
        click.echo(line)


@click.command(name="import")
@click.argument("file")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="NAME",
    shell_complete=_formats,
    help=f"{', '.join(FORMATS)}, one of another package, or module:Class of your own.",
)
@click.option("-o", "--out", required=True, help="Folder for labels that `train` reads.")
def import_labels(file: str, source: str, out: str) -> None:
    """Read other people's labelled solutions (JSON Lines, JSON, Parquet) as a run to train on."""
    from mclabel import pipelines

    report = pipelines.import_file(file, source, out)
    click.echo(
        f"{report.num_rows} rows, {report.num_solutions} solutions of {report.num_problems} "
        f"problems. Train on them: mclabel train CONFIG labels=[{out}] …"
    )


@click.command()
@click.argument("prm")
@click.argument("solutions")
@click.option("-o", "--out", help="JSONL file to write; standard output by default.")
@click.option("--device", default="cpu", show_default=True)
@click.option("--url", help="Of a server that `mclabel serve` started for this PRM.")
@click.option(
    "--format",
    "form",
    type=click.Choice(tuple(PRM_FORMATS)),
    default=OWN_FORMAT,
    show_default=True,
    help="Of the PRM: ours, or another's (folder or Hugging Face name).",
)
@click.option(
    "--strict", is_flag=True, help="Stop at the first row that cannot be scored, write nothing."
)
@click.option(
    "--trust-remote-code", is_flag=True, help="Run Python code that comes with the model."
)
def score(
    prm: str,
    solutions: str,
    out: str | None,
    device: str,
    url: str | None,
    form: str,
    strict: bool,
    trust_remote_code: bool,
) -> None:
    """Score the steps of solutions with a trained PRM.

    SOLUTIONS is a .jsonl, .json, .parquet or .csv file; a row has `problem`, and `solution` (a step
    a line) or `steps` (list of texts). Every row is written again with `scores`, one a step, and
    their `last`, `min`, `product`, `mean`, `max` and `log_odds` (sum).

    A row that cannot be scored (too long, no solution, not JSON, ...) is left out; the reason is in
    OUT.rejects.jsonl, without -o on standard error. OUT.provenance.json records what scored.
    """
    from mclabel.data.shards.rejects import Reject, bounded
    from mclabel.pipelines.score import score_file

    def say(reject: Reject) -> None:
        if out is None:
            click.echo(f"row {reject.row} ({reject.reason}): {bounded(reject.detail)}", err=True)

    lines = score_file(
        prm,
        solutions,
        out,
        device=device,
        url=url,
        form=form,
        strict=strict,
        on_reject=say,
        trust_remote_code=trust_remote_code,
    )
    for line in lines:
        click.echo(line)


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("prm")
@click.argument("vllm_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(prm: str, vllm_arguments: tuple[str, ...]) -> None:
    """Serve a PRM with vLLM; arguments that follow are those of `vllm serve`, e.g. --port 8001.

    Python code that comes with the PRM runs with --trust-remote-code alone.

    Score through it: mclabel score PRM FILE --url http://localhost:8000
    """
    from mclabel.pipelines.serve import serve as run

    run(prm, vllm_arguments)
