"""The verbs of PRMs and of label formats: `train`, `score`, `serve`, `export`, `import`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click

from mclabel.cli.options import (
    SEED,
    LibraryDefaultOption,
    add_configuration_arguments,
    add_settings_arguments,
)
from mclabel.cli.output import (
    add_json_option,
    console,
    errors,
    fail_if_stopped,
    print_num_rejected,
    record_json_result,
    refuse_json_option,
)
from mclabel.core.errors import ConfigError, shorten_detail
from mclabel.data.exchange import FORMATS, PARQUET, VERIFIER_CHAINS
from mclabel.prm.scoring import FORMATS as PRM_FORMATS
from mclabel.prm.scoring import OWN_FORMAT


@click.command()
@add_configuration_arguments("mclabel.prm.config:TrainConfig")
@click.option(
    "--preflight",
    "is_preflight",
    is_flag=True,
    help=("Check the data and print examples, without training."),
)
@add_json_option
def train(
    config: str, overrides: tuple[str, ...], allow: tuple[str, ...], is_preflight: bool
) -> None:
    """Train a PRM or an ORM on labels.

    CONFIG is a YAML file, such as configs/train/own-labels.yaml, which comes with mclabel. Its keys
    can be overridden: labels=[RUN], base=MODEL, out=FOLDER. Running the same command again resumes
    an interrupted run. --preflight prints three examples, token by token, with their labels.
    """
    from mclabel.core.config.load import load_config
    from mclabel.prm.config import TrainConfig
    from mclabel.prm.job import preflight
    from mclabel.prm.job import train as run_train
    from mclabel.show.progress import STARTING_STATUS, StageProgress

    if Path(config).is_dir():
        raise ConfigError(
            f"{config}: is a folder, but the first argument must be a YAML file. To train on "
            "labels in this folder: "
            f"mclabel train configs/train/own-labels.yaml labels=[{config}] base=MODEL out=FOLDER"
        )
    checked = load_config(TrainConfig, config, overrides, allow=allow)
    if is_preflight:
        preflight_report = preflight(checked)
        if not record_json_result(preflight_report):
            click.echo("\n".join(preflight_report.lines(examples=True)))
        preflight_report.check_targets_differ()
        return

    with StageProgress(console, "train", "steps", opening=STARTING_STATUS) as progress:
        report = run_train(
            checked,
            lambda step, total, loss: progress.update(step, total, detail=loss),
            lambda preflight_report: click.echo("\n".join(preflight_report.lines(examples=False))),
        )
    record_json_result(report)
    console.print(
        f"Trained on {report.num_solutions} solutions, {report.num_validation} kept for "
        "validation.",
        highlight=False,
    )
    for name, metric in report.validation.items() if report.num_validation else ():
        value = "-" if metric is None else f"{metric:.4g}"
        console.print(f"  validation {name.replace('_', ' ')}: {value}", highlight=False)
    console.print(f"Model: {report.model}. Score with it: mclabel score {checked.out} FILE")


@click.command(name="export")
@click.argument("run")
@click.option(
    "--to",
    required=True,
    metavar="NAME",
    help=f"Format: {PARQUET}, {', '.join(FORMATS)}, {VERIFIER_CHAINS}, one that another package "
    "adds, or module:Class of your own.",
)
@click.option(
    "-o", "--out", required=True, help=("Folder for the exported data and its dataset card.")
)
@click.option(
    "--push-to-hub", help=("Name of a dataset on the Hugging Face Hub to upload the folder to.")
)
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first solution that the format cannot hold. By default, such solutions are "
    "left out, and rejects.jsonl in the folder has the reasons.",
)
@click.option(
    "--labels",
    metavar="RUN",
    help=f"For {VERIFIER_CHAINS}: run with the labels of the judged solutions. Required.",
)
@click.option(
    "--filter",
    "chain_filter",
    type=click.Choice(["process", "outcome", "none"]),
    cls=LibraryDefaultOption,
    show_default="process",
    help=f"For {VERIFIER_CHAINS}: write only chains that agree with the labels of the steps "
    "(process), or with the outcome of the solution (outcome), or write all chains (none).",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    cls=LibraryDefaultOption,
    show_default="4096",
    help=f"For {VERIFIER_CHAINS}: leave out chains with more tokens.",
)
@click.option(
    "--per-solution",
    type=click.IntRange(1),
    cls=LibraryDefaultOption,
    show_default="1",
    help=f"For {VERIFIER_CHAINS}: maximum number of chains of one solution.",
)
@click.option(
    "--prompt",
    metavar="NAME",
    help=f"For {VERIFIER_CHAINS}: built-in prompt of the critic, such as thinkprm, to write in "
    "place of the prompt that the critic received.",
)
@click.option(
    "--seed",
    type=SEED,
    cls=LibraryDefaultOption,
    show_default="0",
    help=f"For {VERIFIER_CHAINS}: random seed of the choice of chains.",
)
@add_json_option
def export_labels(
    run: str,
    to: str,
    out: str,
    push_to_hub: str | None,
    strict: bool,
    labels: str | None,
    chain_filter: str | None,
    max_tokens: int | None,
    per_solution: int | None,
    prompt: str | None,
    seed: int | None,
) -> None:
    """Write a run's labels as Parquet, or for TRL and others.

    `parquet` holds all labels and rollouts. For other formats, the command prints which information
    they cannot hold, and how many solutions were left out. RUN may also be a folder of `mclabel
    annotate`, which is written as prm800k or parquet, with one row for each person's opinion on a
    solution. For verifier-chains, RUN is the output of a critic (`mclabel judge`), whose answers
    become training data for a verifier.
    """
    from mclabel.annotate.export import export_annotations
    from mclabel.annotate.storage import is_annotation_folder
    from mclabel.data.exchange.job import ExportReport, TablesReport, export_run, export_tables
    from mclabel.judge.verifier_chains import ChainSelection, ChainsReport, export_chains

    given_chain_options: dict[str, Any] = {
        name: value
        for name, value in {
            "filter": chain_filter,
            "max_tokens": max_tokens,
            "per_solution": per_solution,
            "prompt": prompt,
            "seed": seed,
        }.items()
        if value is not None
    }
    report: ExportReport | TablesReport | ChainsReport
    if to == VERIFIER_CHAINS:
        if labels is None:
            raise ConfigError(
                f"--to {VERIFIER_CHAINS}: needs --labels RUN. Give the run with the labels of the "
                f"solutions that were judged in {run}"
            )
        report = export_chains(
            run, labels, out, ChainSelection(**given_chain_options), push_to_hub=push_to_hub
        )
    elif chain_option_names := [*(["labels"] if labels is not None else []), *given_chain_options]:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in chain_option_names)
        raise ConfigError(
            f"{options}: works only with --to {VERIFIER_CHAINS}, not with {to}. Remove {options}"
        )
    elif is_annotation_folder(run):
        report = export_annotations(run, to, out, push_to_hub=push_to_hub)
    elif to == PARQUET:
        report = export_tables(run, out, push_to_hub=push_to_hub)
    else:
        _check_format_name(to)
        report = export_run(run, to, out, push_to_hub=push_to_hub, strict=strict)
    if not record_json_result(report):
        click.echo("\n".join(report.lines()))


def _check_format_name(to: str) -> None:
    """Raise an error that lists the names of all formats if a name is none of them."""
    from mclabel.data.exchange.formats import list_format_names

    formats = [PARQUET, *list_format_names(), VERIFIER_CHAINS]
    if ":" not in to and to not in formats:
        nearest = get_close_matches(to, formats, n=1, cutoff=0.5)
        suggestion = f"did you mean {nearest[0]}? " if nearest else ""
        raise ConfigError(
            f"--to {to}: is not a format. {suggestion[:1].upper()}{suggestion[1:]}Choose one of "
            f"{', '.join(formats)}, or module:Class of your own"
        )


@click.command(name="import")
@click.argument("file")
@click.option(
    "--from",
    "source",
    required=True,
    metavar="NAME",
    help=f"Format: {', '.join(FORMATS)}, one that another package adds, or module:Class of your "
    "own.",
)
@click.option("-o", "--out", required=True, help="Folder for labels that `train` reads.")
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row that cannot be used. By default, such rows are left out, and "
    "rejects.jsonl in the folder has the reasons.",
)
@add_json_option
def import_labels(file: str, source: str, out: str, strict: bool) -> None:
    """Import labelled solutions from another format as a run to train on.

    FILE is JSON Lines, JSON or Parquet.
    """
    from mclabel.data.exchange.job import import_file

    report = import_file(file, source, out, strict=strict)
    record_json_result({"out": out, **asdict(report)})
    click.echo(
        f"{report.num_rows} rows, {report.num_solutions} solutions of {report.num_problems} "
        f"problems. Train on them: mclabel train CONFIG labels=[{out}] …"
    )
    print_num_rejected(report.num_rejected, "rows or solutions were left out", out)


@click.command()
@click.argument("prm")
@click.argument("solutions")
@add_settings_arguments("mclabel.judge.job:ScoreConfig")
@click.option(
    "-o",
    "--out",
    help=(
        "File to write (.jsonl), or folder or URL for a run of opinions with the scores; the "
        "default is standard output."
    ),
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="PyTorch device that computes the scores, such as cpu or cuda; auto takes cuda if this "
    "machine has a GPU.",
)
@click.option("--url", help="URL of a server that `mclabel serve` started for this PRM.")
@click.option(
    "--format",
    "prm_format",
    type=click.Choice(tuple(PRM_FORMATS)),
    default=OWN_FORMAT,
    show_default=True,
    help="Format of the PRM: mclabel's own, or that of another project.",
)
@click.option("--address", help="Address of the Ray cluster to join; the same as ray.address=.")
@click.option(
    "--strict",
    is_flag=True,
    help=("Stop at the first row that cannot be scored, and write nothing."),
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Continue although solutions were changed or removed since the run began: score changed "
    "solutions again, and leave out the old scores of changed and removed ones.",
)
@click.option(
    "--trust-remote-code",
    is_flag=True,
    help=("Allow Python code that comes with the model to run."),
)
@add_json_option
def score(
    prm: str,
    solutions: str,
    overrides: tuple[str, ...],
    out: str | None,
    device: str,
    url: str | None,
    prm_format: str,
    address: str | None,
    strict: bool,
    accept_changes: bool,
    trust_remote_code: bool,
) -> None:
    """Score the steps of solutions with a trained PRM.

    SOLUTIONS is a .jsonl, .json, .parquet or .csv file. A row has `problem`, and `solution` (one
    step per line, or per paragraph for --format qwen and rlhflow) or `steps` (a list of texts).
    SOLUTIONS may also be the folder or URL of a labelling run. Every row is written again with
    `scores`, one per step, and the `last`, `min`, `product`, `mean`, `max` and `log_odds` (sum) of
    its scores.

    With -o, running the same command again resumes an interrupted run. KEY=VALUE sets where and for
    how long scoring runs: ray.address=auto scores on a cluster, and budget.max_hours=3 stops after
    three hours.

    A row that cannot be scored (too long, no solution, not JSON, ...) is left out. The reason is
    written to OUT.rejects.jsonl (rejects.jsonl in a folder), or without -o to standard error.
    OUT.provenance.json (run.json in a folder) records the PRM and the versions that were used.
    """
    from mclabel.core.config.load import load_config
    from mclabel.judge.job import ScoreConfig
    from mclabel.judge.score import score as run
    from mclabel.show.progress import job_progress

    if out is None:
        refuse_json_option("-o OUT")
    option_values: dict[str, object] = {
        "prm": prm,
        "solutions": solutions,
        "out": out,
        "device": device,
        "url": url,
        "format": prm_format,
        "strict": strict or None,
        "trust_remote_code": trust_remote_code or None,
        "ray.address": address,
    }
    option_overrides = [
        f"{key}={json.dumps(value)}" for key, value in option_values.items() if value is not None
    ]
    config = load_config(ScoreConfig, None, [*option_overrides, *overrides])
    progress_console = console if out is not None else errors
    is_quiet = out is None and not errors.is_terminal  # then standard error has only rejected rows
    with (
        nullcontext(lambda state: None)
        if is_quiet
        else job_progress(progress_console, "score", "solutions") as progress
    ):
        report = run(config, progress, on_line=click.echo, accept_changes=accept_changes)
    if out is None:
        for reject in report.rejects:
            click.echo(
                f"row {reject.row} ({reject.reason}): {shorten_detail(reject.detail)}", err=True
            )
        return
    job = report.job
    figures = {"num_scored": report.num_scored, "num_unknown": report.num_unknown}
    record_json_result({"out": out, "job": job, **figures})
    fail_if_stopped(job)
    click.echo(f"{report.num_scored} solutions scored, written to {out}")
    if report.num_unknown:
        click.echo(
            f"{report.num_unknown} solutions have no scores, because the PRM gives no verdict on "
            "them; their field `unknown` has the reason"
        )
    if job.num_rejected:
        rejects_path = f"{out}.rejects.jsonl" if out.endswith(".jsonl") else f"{out}/rejects.jsonl"
        click.echo(
            f"{job.num_rejected} rows could not be scored; the reasons are in {rejects_path}"
        )


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("prm")
@click.argument("vllm_arguments", nargs=-1, type=click.UNPROCESSED)
def serve(prm: str, vllm_arguments: tuple[str, ...]) -> None:
    """Serve a PRM with vLLM. Further arguments are passed to `vllm serve`, such as --port 8001.

    Python code that comes with the PRM runs only with --trust-remote-code.

    To score with the server: mclabel score PRM FILE --url http://localhost:8000
    """
    from mclabel.prm.scoring.served import serve as run

    run(prm, vllm_arguments)
