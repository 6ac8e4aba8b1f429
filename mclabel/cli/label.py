"""The subcommands that make labels: `label`, `submit`, `regrade`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from mclabel.cli.options import ALLOW, add_configuration_arguments
from mclabel.cli.output import (
    EXIT_BUDGET,
    EXIT_INTERRUPTED,
    EXIT_NOTHING,
    add_json_option,
    console,
    fail,
    print_lines,
    print_num_rejected,
    record_json_result,
)

if TYPE_CHECKING:
    from mclabel.labeling.config import LabelConfig
    from mclabel.run.plan_index import InputChanges
    from mclabel.run.tally import JobReport, JobState


MAX_COUNTED = 1 << 26
"""Maximum size in bytes of a file of problems whose rows are counted for a message."""
REJECTED = "rows or problems could not be labelled"
"""Text after the number of rejects of a labelling job."""


@click.command()
@add_configuration_arguments("mclabel.labeling.config:LabelConfig")
@click.option("--address", help="Address of the Ray cluster to join; the same as ray.address=.")
@click.option(
    "--solutions",
    metavar="RUN",
    help="Label the solutions of this run of the same policy again, and reuse its rollouts; "
    "the same as solutions.run=.",
)
@click.option(
    "--select",
    metavar="MANIFEST",
    help="Label only the solutions that `mclabel select` has chosen, from the pool that the "
    "manifest names unless --solutions names another place; the same as solutions.select= with "
    "solutions.run= or solutions.path=.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Check the inputs and the model, and print the plan without running it, with a cost "
    "forecast if some blocks are labelled already. Exit code 2 means that the job cannot "
    "run.",
)
@click.option(
    "--pilot",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[PROBLEMS]",
    help=(
        "With --dry-run: label about this many problems first, to forecast the cost; without a "
        "number, mclabel chooses one. The estimator posterior also labels the solutions from which "
        "it learns its priors, 125 by default. The job keeps the labels."
    ),
)
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row or problem that cannot be labelled; the same as strict=true.",
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Continue although problems were changed or removed since the run began: label changed "
    "problems again, and hide the old labels of changed and removed ones.",
)
@add_json_option
def label(
    config: str,
    overrides: tuple[str, ...],
    allow: tuple[str, ...],
    address: str | None,
    solutions: str | None,
    select: str | None,
    dry_run: bool,
    pilot: int | None,
    strict: bool,
    accept_changes: bool,
) -> None:
    """Label the steps of solutions to problems by rollouts.

    CONFIG is a YAML file, such as configs/label/own-data.yaml, which comes with mclabel. Its keys
    can be overridden: problems.source=problems.jsonl (rows of `problem` and `answer`),
    policy.model=MODEL, out=FOLDER. The labels are Parquet shards in the folder. Running the same
    command again resumes an interrupted run.
    """
    if address is not None:
        overrides = (*overrides, f"ray.address={address}")
    if solutions is not None:
        overrides = (*overrides, f"solutions.run={json.dumps(solutions)}")
    if select is not None:
        overrides = (*overrides, *_build_selection_overrides(select, overrides))
    if strict:
        overrides = (*overrides, "strict=true")
    from mclabel.core.config.load import load_config
    from mclabel.labeling.config import LabelConfig
    from mclabel.labeling.job import label as run_label
    from mclabel.show.progress import job_progress

    checked = load_config(LabelConfig, config, overrides, allow=allow)
    if dry_run:
        _print_dry_run(checked, pilot, accept_changes=accept_changes)
        return
    if pilot is not None:
        raise click.UsageError("--pilot works only with --dry-run. Add it")
    first_solution_printer = _FirstSolutionPrinter(checked.out)
    with job_progress(console, "label") as progress:

        def on_state(state: JobState) -> None:
            progress(state)
            if state.num_blocks_done:
                first_solution_printer.show(is_resumed=state.num_items_resumed > 0)

        report = run_label(checked, on_state, accept_changes=accept_changes)
    first_solution_printer.show(is_resumed=report.num_blocks_resumed > 0)
    _print_report(report, checked)


def _print_report(report: JobReport, config: LabelConfig) -> None:
    """Print and record a job's result, and exit with an error if it stopped or left no labels."""
    from mclabel.run.shards.labels import read_labels
    from mclabel.run.shards.store import Store

    _print_input_changes(report.changes)
    resumed_note = (
        f"; {report.num_blocks_resumed:,} of {report.num_blocks:,} blocks were done before"
        if report.num_blocks_resumed
        else ""
    )
    console.print(
        f"{report.num_items} problems, {report.counts.get('num_solutions', 0)} solutions, "
        f"{report.counts.get('num_rollouts', 0):,} rollouts, {report.num_tokens:,} tokens in this "
        f"run{resumed_note}.",
        highlight=False,
        soft_wrap=True,
    )
    _print_row_limit(config)
    print_num_rejected(report.num_rejected, REJECTED, config.out)
    record_json_result({"out": config.out, "job": report, "health": _print_run_health(config.out)})
    if report.stopped_by is not None:
        tokens = report.num_tokens_left
        tokens_note = "" if tokens is None else f", about {tokens:,.0f} tokens,"
        fail(
            f"stopped by {report.stopped_by}: {report.num_blocks_left:,} of {report.num_blocks:,} "
            f"blocks{tokens_note} are left. Finished blocks are saved, and unfinished ones are "
            "in the journals. Run the same command with a larger budget to continue",
            EXIT_BUDGET,
        )
    if next(read_labels(Store(config.out)), None) is None:
        fail(
            f"no problem could be labelled: all were left out. {config.out}/rejects.jsonl has the "
            "reasons",
            EXIT_NOTHING,
        )
    console.print(f"The labels are in {config.out}. Look at them: mclabel show {config.out}")


def _print_row_limit(config: LabelConfig) -> None:
    """Print how many rows of a local file the job takes, if a limit excludes some."""
    from mclabel.data.readers.rows import scan_rows

    problems, path = config.problems, Path(config.problems.source)
    if problems.limit is None or not path.is_file() or path.stat().st_size > MAX_COUNTED:
        return
    num_rows = sum(1 for _ in scan_rows(problems.source))
    if num_rows > problems.limit:
        print_lines(
            f"The job takes {problems.limit:,} of {num_rows:,} rows of {problems.source}: "
            f"problems.limit={problems.limit}."
        )


class _FirstSolutionPrinter:
    """Shows the first labelled solution of a run, once, unless the job resumes an interrupted
    run.
    """

    def __init__(self, out: str) -> None:
        self._out, self._is_shown = out, False

    def show(self, *, is_resumed: bool) -> None:
        """Show the solution if it is committed and was not shown before."""
        from mclabel.run.shards.labels import read_committed_block_ids, read_labels
        from mclabel.run.shards.store import Store
        from mclabel.show.solutions import show_solution

        store = Store(self._out)
        if self._is_shown or is_resumed or not read_committed_block_ids(store):
            return
        row = next(read_labels(store), None)
        if row is not None:
            self._is_shown = True
            console.print("The first labelled solution:")
            show_solution(console, row)


def _print_input_changes(changes: InputChanges) -> None:
    """Print the differences between the current input and the input that the run has recorded."""
    changed = [
        f"{count:,} problems {description}"
        for count, description in (
            (changes.num_added, "were added"),
            (changes.num_changed, "have changed and are labelled again"),
            (changes.num_gone, "were removed and are no longer read"),
            (changes.num_other_meta, "differ in other columns; labels keep the earlier values"),
        )
        if count
    ]
    if changed:
        print_lines(f"Since the run began: {'; '.join(changed)}.")


def _build_selection_overrides(manifest: str, overrides: Sequence[str]) -> list[str]:
    """Return overrides that set `solutions.select` to a selection's manifest and, unless
    `overrides` name the solutions, set its pool as their source.
    """
    from mclabel.data.readers.solutions import read_selected

    selection_overrides = [f"solutions.select={json.dumps(manifest)}"]
    pool = read_selected(manifest).about["pool"]
    key = "solutions.path" if pool["kind"] == "file" else "solutions.run"
    if not any(
        override.startswith(("solutions.path=", "solutions.run=")) for override in overrides
    ):
        selection_overrides.append(f"{key}={json.dumps(pool['place'])}")
    return selection_overrides


def _print_dry_run(config: LabelConfig, pilot: int | None, *, accept_changes: bool) -> None:
    from mclabel.labeling.forecast import forecast, run_pilot
    from mclabel.labeling.preview import plan_labelling, preview
    from mclabel.show.progress import job_progress

    def print_named_lines(lines: Iterable[tuple[str, str]]) -> None:
        for name, text in lines:
            print_lines(f"{name}: {text}")

    plan = plan_labelling(config)
    print_named_lines(plan.lines())
    previewed = preview(config)  # raises an error if the job lacks something
    print_named_lines(previewed.lines())
    report = None
    if pilot is not None:
        with job_progress(console, "pilot") as progress:
            report = run_pilot(
                config, progress, num_problems=pilot or None, accept_changes=accept_changes
            )
        print_num_rejected(report.num_rejected, REJECTED, config.out)
        _print_run_health(config.out)
    estimate = None
    if "://" in config.out or Path(config.out).is_dir():
        estimate = forecast(config, accept_changes=accept_changes)
    if estimate is None:
        print_named_lines([("forecast", "none yet; add --pilot to label some blocks first")])
    else:
        print_named_lines(estimate.lines())
    record_json_result(
        {
            "out": config.out,
            "inputs": previewed.inputs,
            "models": previewed.models,
            "engine": plan.resources,
            "pilot": report,
            "forecast": estimate,
        }
    )


def _print_run_health(out: str) -> dict[str, Any] | None:
    """Print any reasons against training on a run's labels, and return the run's health figures."""
    from mclabel.evaluate.health import ENOUGH_FILES, assess_run_health, convert_health_to_json
    from mclabel.report.page.health import format_findings
    from mclabel.run.shards.store import Store

    health = assess_run_health(Store(out), max_files=ENOUGH_FILES)
    if health is None:
        return None
    if not health.findings:
        return convert_health_to_json(health)
    read_note = f", from {health.num_read:,} of {health.num_shards:,} shards"
    print_lines(
        f"Health of the run{read_note if health.num_read < health.num_shards else ''} "
        f"(all figures: mclabel labels {out}):",
    )
    for line in format_findings(health):
        console.print(Text("  ").append_text(line), highlight=False, soft_wrap=True)
    return convert_health_to_json(health)


@click.group()
def submit() -> None:
    """Run a job on a Ray cluster from outside it."""


@submit.command(name="label")
@add_configuration_arguments("mclabel.labeling.config:LabelConfig")
@click.option(
    "--address",
    required=True,
    help=("Address of the cluster's job server, such as http://HOST:8265."),
)
@click.option("--runtime-env", help="YAML file of Ray's runtime environment for the job.")
def submit_label(
    config: str,
    overrides: tuple[str, ...],
    allow: tuple[str, ...],
    address: str,
    runtime_env: str | None,
) -> None:
    """Run `mclabel label` on the cluster, and print its log.

    The exit code is the exit code of the job.
    """
    from mclabel.labeling.submit import follow_job
    from mclabel.labeling.submit import submit_label as start

    job = start(config, overrides, allow=allow, address=address, runtime_env=runtime_env)
    console.print(f"Submitted as {job.id}.", highlight=False)
    try:
        code = follow_job(job, lambda log_part: click.echo(log_part, nl=False))
    except KeyboardInterrupt:
        stop_command = f"ray job stop --address {address} {job.id}"
        fail(f"the job keeps running on the cluster. To stop it: {stop_command}", EXIT_INTERRUPTED)
    sys.exit(code)


@click.command()
@click.argument("run")
@click.option("-o", "--out", required=True, help="Folder or URL of the new run.")
@click.option(
    "--golds", help=("File of corrected gold answers, with problem_id and answer in each row.")
)
@click.option(
    "--change-checker",
    is_flag=True,
    help="Allow CHANGES to choose another checker than the run's, which may change every verdict.",
)
@ALLOW
@click.argument("changes", nargs=-1)
@add_json_option
def regrade(
    run: str,
    out: str,
    golds: str | None,
    change_checker: bool,
    allow: tuple[str, ...],
    changes: tuple[str, ...],
) -> None:
    """Grade a run's solutions and rollouts again.

    No engine is needed. RUN is the folder or URL of a run with keep_rollouts=true. The installed
    checker grades its completions again, its estimator derives labels from the new verdicts, and
    the labels are written to a new run. Running the same command again resumes an interrupted run.
    CHANGES override settings of the checker, such as checker.units_optional=false, or choose
    another checker:
    checker=my_package.grading:is_right with --change-checker. Code outside mclabel that the run
    names (a checker, an estimator) runs only with --allow MODULE.
    """
    from mclabel.labeling.regrade import regrade as run_regrade
    from mclabel.show.progress import StageProgress

    with StageProgress(console, "grade", "blocks") as stage:
        report = run_regrade(
            run,
            out,
            golds=golds,
            checker=changes,
            change_checker=change_checker,
            allow=allow,
            on_progress=stage.update,
        )
    record_json_result({"out": out, **asdict(report)})
    print_lines(*report.lines())
    print_lines(f"The labels are in {out}.")
