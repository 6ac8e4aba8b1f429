"""The verbs that make labels: `label`, `submit`, `compact`, `regrade`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from mclabel.cli.options import ALLOW, configuration
from mclabel.cli.output import console, errors
from mclabel.errors import ShardError
from mclabel.exits import EXIT_BUDGET, EXIT_INTERRUPTED, fail

if TYPE_CHECKING:
    from mclabel.config import LabelConfig
    from mclabel.work.plan_index import InputChanges


@click.command()
@configuration("LabelConfig")
@click.option("--address", help="Ray cluster to join, the same as ray.address=.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Read the inputs, look at the model, and print what would be done and, from blocks that "
    "are done, what it would cost. Exit code 2 says that the job would not run.",
)
@click.option(
    "--pilot",
    is_flag=False,
    flag_value=0,
    type=click.IntRange(0),
    metavar="[PROBLEMS]",
    help="With --dry-run: label some blocks first, for the forecast; the job finds them done.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first row or problem that cannot be labelled, the same as strict=true.",
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Where problems have changed since the run was begun, or are gone: label the changed ones "
    "anew, and let readers skip the labels of both.",
)
def label(
    config: str,
    overrides: tuple[str, ...],
    allow: tuple[str, ...],
    address: str | None,
    dry_run: bool,
    pilot: int | None,
    strict: bool,
    accept_changes: bool,
) -> None:
    """Label the steps of solutions: problems in, Parquet shards out.

    CONFIG is a YAML file; every key can be overridden, e.g. estimator.kind=bisect. Running the
    same command again resumes.
    """
    if address is not None:
        overrides = (*overrides, f"ray.address={address}")
    if strict:
        overrides = (*overrides, "strict=true")
    from mclabel import pipelines
    from mclabel.config import LabelConfig, load_config
    from mclabel.report.terminal.job_progress import job_progress

    checked = load_config(LabelConfig, config, overrides, allow=allow)
    if dry_run:
        _dry_run(checked, pilot, accept_changes=accept_changes)
        return
    if pilot is not None:
        raise click.UsageError("--pilot goes with --dry-run")
    with job_progress(console, "label") as progress:
        report = pipelines.label(checked, progress, accept_changes=accept_changes)
    _say_changes(report.changes)
    before = (
        f"; {report.num_blocks_resumed:,} of {report.num_blocks:,} blocks were there before"
        if report.num_blocks_resumed
        else ""
    )
    console.print(
        f"{report.num_items} problems, {report.counts.get('num_solutions', 0)} solutions, "
        f"{report.counts.get('num_rollouts', 0):,} rollouts, {report.num_tokens:,} tokens in this "
        f"run{before}.",
        highlight=False,
        soft_wrap=True,
    )
    _say_rejected(report.num_rejected, checked.out)
    _say_health(checked.out)
    if report.stopped_by is not None:
        tokens = report.num_tokens_left
        about = "" if tokens is None else f", about {tokens:,.0f} tokens,"
        fail(
            f"stopped by {report.stopped_by}: {report.num_blocks_left:,} of {report.num_blocks:,} "
            f"blocks{about} are left. What is whole is committed, what was under way journaled; "
            "run the same command with a larger budget to go on",
            EXIT_BUDGET,
        )
    console.print(f"Labels lie in {checked.out}. Look at them: mclabel show {checked.out}")


def _say_changes(changes: InputChanges) -> None:
    """How the input differs from what the run was begun with."""
    said = [
        f"{count:,} problems {what}"
        for count, what in (
            (changes.num_added, "were added"),
            (changes.num_changed, "have changed and are labelled anew"),
            (changes.num_gone, "are gone and no longer read"),
            (changes.num_other_meta, "differ in other columns, of which labels keep the former"),
        )
        if count
    ]
    if said:
        text = f"Since the run was begun: {'; '.join(said)}."
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _dry_run(config: LabelConfig, pilot: int | None, *, accept_changes: bool) -> None:
    from mclabel import pipelines
    from mclabel.report.terminal.job_progress import job_progress

    def show(lines: list[tuple[str, str]]) -> None:
        for name, planned in lines:
            console.print(f"{name}: {planned}", markup=False, highlight=False, soft_wrap=True)

    show(pipelines.plan(config).lines())
    show(pipelines.preview(config))
    if pilot is not None:
        with job_progress(console, "pilot") as progress:
            report = pipelines.run_pilot(
                config, progress, num_problems=pilot or None, accept_changes=accept_changes
            )
        _say_rejected(report.num_rejected, config.out)
    found = None
    if "://" in config.out or Path(config.out).is_dir():
        found = pipelines.forecast(config, accept_changes=accept_changes)
    if found is None:
        show([("forecast", "none yet; add --pilot to label some blocks first")])
    else:
        show(found.lines())


def _say_rejected(count: int, out: str) -> None:
    if count:
        errors.print(
            f"{count:,} rows or problems have no labels; the reasons: {out}/rejects.jsonl",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _say_health(out: str) -> None:
    """What stands against training on the labels; nothing if nothing does."""
    from mclabel.data.shards.store import Store
    from mclabel.evaluation.health import ENOUGH_FILES, run_health
    from mclabel.report.page.health import finding_lines

    health = run_health(Store(out), max_files=ENOUGH_FILES)
    if health is None or not health.findings:
        return
    part = f", from {health.num_read:,} of {health.num_shards:,} shards"
    console.print(
        f"Health of the run{part if health.num_read < health.num_shards else ''} "
        f"(all figures: mclabel labels {out}):",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    for line in finding_lines(health):
        console.print(Text("  ").append_text(line), highlight=False, soft_wrap=True)


@click.group()
def submit() -> None:
    """Run a job on a Ray cluster from outside it."""


@submit.command(name="label")
@configuration("LabelConfig")
@click.option("--address", required=True, help="Job server of the cluster, http://HOST:8265.")
@click.option("--runtime-env", help="YAML file of Ray's runtime environment for the job.")
def submit_label(
    config: str,
    overrides: tuple[str, ...],
    allow: tuple[str, ...],
    address: str,
    runtime_env: str | None,
) -> None:
    """Upload CONFIG, run `mclabel label` on the cluster, follow its log, give its exit code."""
    from mclabel.pipelines.submit import follow
    from mclabel.pipelines.submit import submit_label as start

    job = start(config, overrides, allow=allow, address=address, runtime_env=runtime_env)
    console.print(f"Submitted as {job.id}.", highlight=False)
    try:
        code = follow(job, lambda piece: click.echo(piece, nl=False))
    except KeyboardInterrupt:
        stop = f"ray job stop --address {address} {job.id}"
        fail(f"the job goes on. To stop it: {stop}", EXIT_INTERRUPTED)
    sys.exit(code)


@click.command()
@click.argument("run")
@click.option(
    "--rows", default=20_000, show_default=True, type=click.IntRange(1), help="Of a merged shard."
)
def compact(run: str, rows: int) -> None:
    """Merge the small shards of a run into large ones.

    RUN is a folder or URL. Readers see the old shards or the new ones, never both; labelling may go
    on meanwhile.
    """
    from mclabel.data.shards.compact import compact as merge
    from mclabel.data.shards.store import Store
    from mclabel.report.terminal.job_progress import StageProgress

    with StageProgress(console, "read", "shards") as stage:
        done = merge(Store(run), rows=rows, on_progress=stage.update)
    if not done.num_before:
        raise ShardError(f"{run}: holds no labels. Give the `out` of a labelling job")
    console.print(
        f"{run}: {done.num_before:,} shards are now {done.num_after:,} "
        f"({done.num_solutions:,} solutions merged)",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


@click.command()
@click.argument("run")
@click.option("-o", "--out", required=True, help="Folder or URL of the new run.")
@click.option("--golds", help="File of corrected golds: problem_id and answer.")
@ALLOW
@click.argument("changes", nargs=-1)
def regrade(
    run: str, out: str, golds: str | None, allow: tuple[str, ...], changes: tuple[str, ...]
) -> None:
    """Grade a run's solutions and rollouts again, without an engine.

    RUN is a folder or URL, labelled with keep_rollouts=true. Its estimator judges again on the
    verdicts of the checker that is installed, and the labels are written to a run of their own.
    Running the same command again resumes. CHANGES are of the run's checker, such as
    checker.rules.units_optional=false, or name another one: checker=my_package.grading:is_right.
    Code that the run itself names (its checker, its estimator) runs only with --allow MODULE.
    """
    from mclabel import pipelines
    from mclabel.report.terminal.job_progress import StageProgress

    with StageProgress(console, "grade", "blocks") as stage:
        done = pipelines.regrade(
            run, out, golds=golds, checker=changes, allow=allow, on_progress=stage.update
        )
    for line in done.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print(f"Labels lie in {out}.", highlight=False, markup=False, soft_wrap=True)
