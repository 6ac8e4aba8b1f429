"""The subcommands that show or check a run: `show`, `labels`, `report`, `view`, `annotate`,
`verify`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mclabel.cli.options import SEED, LibraryDefaultOption, UnitIntervalType
from mclabel.cli.output import (
    EXIT_DAMAGED,
    add_json_option,
    console,
    errors,
    print_lines,
    record_json_result,
)

if TYPE_CHECKING:
    from mclabel.core.records import LabeledSolution
    from mclabel.run.verify.single_files import Verification


@click.command()
@click.argument("shards")
@click.option(
    "--limit",
    default=5,
    show_default=True,
    type=click.IntRange(1),
    help=("Maximum number of solutions to print."),
)
@click.option(
    "--problem",
    help="Print only solutions to the problem with this id; for opinions on a file, the row "
    "with this id.",
)
@click.option("--wrong", is_flag=True, help=("Print only solutions with a first error."))
@add_json_option
def show(shards: str, limit: int, problem: str | None, wrong: bool) -> None:
    """Print solutions with their step values or opinions.

    SHARDS is the folder or URL of a run of labels, or the output of `mclabel judge`.
    """
    from mclabel.evaluate.labels.quality import find_exact_first_error, has_exact_truth
    from mclabel.run.shards.labels import read_labels
    from mclabel.run.shards.opinions import holds_opinions
    from mclabel.run.shards.store import Store
    from mclabel.show.solutions import show_solution

    if holds_opinions(Store(shards)):
        _print_opinions(shards, limit, problem, wrong)
        return
    matching_rows = (
        row
        for row in read_labels(Store(shards))
        if problem in (None, row.problem.id) and not (wrong and row.first_error is None)
    )
    rows = list(islice(matching_rows, limit))
    truths = [find_exact_first_error(row) if has_exact_truth([row]) else "" for row in rows]
    if record_json_result(
        {"solutions": [_convert_row_with_truth(*pair) for pair in zip(rows, truths, strict=True)]}
    ):
        return
    for row, truth in zip(rows, truths, strict=True):
        show_solution(console, row, truth)
    if not rows:
        console.print("No solution matches.")


def _convert_row_with_truth(row: LabeledSolution, truth: int | str | None) -> dict[str, Any]:
    has_truth = truth != ""
    return {**asdict(row), "has_truth": has_truth, "true_first_error": truth if has_truth else None}


def _print_opinions(run: str, limit: int, problem: str | None, wrong: bool) -> None:
    """Print opinions on solutions.

    Args:
        run: folder or URL of the opinions.
        limit: maximum number of solutions.
        problem: id of the problem or solution to print; None for all.
        wrong: True prints only opinions that name a first error.
    """
    from mclabel.judge.opinions import print_judged_solution, read_judged_solutions

    matching_solutions = (
        solution
        for solution in read_judged_solutions(run)
        if problem in (None, solution.id, solution.problem_id)
        and not (wrong and solution.opinion.first_error is None)
    )
    shown_solutions = list(islice(matching_solutions, limit))
    if record_json_result({"solutions": shown_solutions}):
        return
    for solution in shown_solutions:
        print_judged_solution(console, solution)
    if not shown_solutions:
        console.print("No solution matches.")


@click.command()
@click.argument("shards")
@add_json_option
def labels(shards: str) -> None:
    """Print a run's counts, cost, health and label quality.

    SHARDS is the folder or URL of a run of labels. Label quality compares the labels with true
    labels, if these are known.
    """
    from mclabel.evaluate.health import assess_run_health, convert_health_to_json
    from mclabel.evaluate.labels.quality import (
        compute_label_cost,
        find_described_population,
        has_exact_truth,
        measure_quality_by_answer_type,
    )
    from mclabel.evaluate.labels.show import (
        count_solutions_kept_by_consensus,
        make_label_counts_table,
        make_quality_grid,
    )
    from mclabel.report.page.health import format_findings, make_health_grid
    from mclabel.run.shards.finished import find_unfinished_blocks
    from mclabel.run.shards.labels import read_committed_block_ids, read_labels
    from mclabel.run.shards.store import Store
    from mclabel.show.figures import render_rich_table
    from mclabel.show.texts import DESCRIBED

    store = Store(shards)
    rows = list(read_labels(store))
    cost = compute_label_cost(rows)
    health = assess_run_health(store)
    has_parts, blocks_left = find_unfinished_blocks(
        store, committed := read_committed_block_ids(store)
    )
    groups = measure_quality_by_answer_type(rows) if has_exact_truth(rows) else {}
    content = {
        "num_blocks": len(committed),
        "num_blocks_left": len(blocks_left) if has_parts else None,
        "cost": cost,
        "num_kept": count_solutions_kept_by_consensus(rows),
        "describes": find_described_population(rows),
        "health": None if health is None else convert_health_to_json(health),
        "quality": groups,
    }
    if record_json_result(content):
        return
    if blocks_left:
        click.echo(
            f"{len(blocks_left):,} of {len(committed) + len(blocks_left):,} blocks have no "
            "labels yet, and the figures do not include them. Run the command that began the run "
            "again to label them",
            err=True,
        )
    console.print(make_label_counts_table(rows, cost))
    if groups:
        console.print(render_rich_table(make_quality_grid(groups)))
    if (scope := find_described_population(rows)) is not None and groups:
        console.print(DESCRIBED[scope])
    if health is not None:
        console.print(render_rich_table(make_health_grid(health)))
        for line in format_findings(health):
            console.print(line, highlight=False, soft_wrap=True)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--out", default="report.html", show_default=True, help="HTML file to write.")
@add_json_option
def report(runs: tuple[str, ...], out: str) -> None:
    """Write an HTML page about runs.

    It shows settings, label quality, values and best-of-N. RUN is an output of `mclabel label`,
    `eval best-of-n` or `train`, or a folder of such outputs, such as the quickstart's.
    Several runs are compared. The page works without a network. --json prints the page's figures.
    """
    from mclabel.report.page.report import write_report

    report = write_report(runs, out)
    record_json_result(report)
    console.print(f"Report: {report['path']}", soft_wrap=True, highlight=False)


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    cls=LibraryDefaultOption,
    show_default="8780, or any free port if that is taken",
    help="Port of the local server.",
)
def view(runs: tuple[str, ...], port: int | None) -> None:
    """Browse solutions, steps and rollouts in a web browser.

    RUN is an output of `mclabel label`, which may still be running, or a folder of such outputs.
    PRMs in the folder score the steps that are shown. Only this machine can open the page.
    """
    from mclabel.report.viewer.server import serve

    def print_address(address: str) -> None:
        console.print(f"Open {address}\nStop with Ctrl-C.", soft_wrap=True, highlight=False)

    serve(runs, port=port, on_ready=print_address)


@click.command()
@click.argument("run")
@click.option(
    "-o", "--out", required=True, help="Folder for the annotations; an existing one is continued."
)
@click.option(
    "--people",
    cls=LibraryDefaultOption,
    show_default="me",
    help="Names of the annotators, such as ana,ben. Each person gets an address.",
)
@click.option(
    "--sample",
    type=click.IntRange(1),
    cls=LibraryDefaultOption,
    show_default="200",
    help="Number of solutions to draw.",
)
@click.option(
    "--overlap",
    type=UnitIntervalType(),
    cls=LibraryDefaultOption,
    show_default="0.1",
    help="Share of the solutions that two people label, in [0, 1].",
)
@click.option(
    "--seed", type=SEED, cls=LibraryDefaultOption, show_default="0", help="Seed of the draw."
)
@click.option(
    "--guidelines",
    type=click.Path(),
    help="Text file with rules, which the pages show to annotators.",
)
@click.option(
    "--gold",
    type=click.Path(),
    help="JSON Lines file of solutions whose first errors are known. They are mixed in unmarked, "
    "to measure how often each person is right.",
)
@click.option(
    "--gold-share",
    type=UnitIntervalType(),
    cls=LibraryDefaultOption,
    show_default="0.1",
    help="Share of each person's solutions that are from --gold, in [0, 1].",
)
@click.option(
    "--select",
    type=click.Path(),
    help="Manifest of `mclabel select` that names the solutions, in place of a draw.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    cls=LibraryDefaultOption,
    show_default="8790, or any free port if that is taken",
    help="Port of the local server.",
)
@add_json_option
def annotate(
    run: str,
    out: str,
    people: str | None,
    guidelines: str | None,
    gold: str | None,
    select: str | None,
    port: int | None,
    **settings: float | None,
) -> None:
    """Label steps of a run's solutions by hand, in a web browser.

    RUN is an output of `mclabel label`. Its labels are hidden until you have submitted yours. `eval
    labels RUN --truth OUT` then measures the run, and `export OUT --to prm800k` writes the people's
    labels. The overseer's address shows each person's progress, and where people disagree. Only
    this machine can open the pages.
    """
    from mclabel.annotate.serve import annotate as serve
    from mclabel.data.readers.rows import read_text

    option_values = {
        "people": None if people is None else _parse_people(people),
        "guidelines": None if guidelines is None else read_text(guidelines),
        **settings,
    }

    def print_addresses(addresses: Mapping[str, str]) -> None:
        for person, address in addresses.items():
            console.print(f"{person}: open {address}", soft_wrap=True, highlight=False)
        console.print("Stop with Ctrl-C; submitted labels are saved.", highlight=False)

    settings_given = {name: value for name, value in option_values.items() if value is not None}
    summary = serve(
        run, out, settings_given, gold=gold, select=select, port=port, on_ready=print_addresses
    )
    record_json_result({"out": out, **asdict(summary)})
    print_lines(*summary.lines())


def _parse_people(people: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in people.split(","))
    if not all(names) or len(set(names)) < len(names) or not people.isprintable():
        raise click.BadParameter(
            f"{people!r}: must be different names, separated by commas, such as ana,ben",
            param_hint="--people",
        )
    return names


@click.command()
@click.argument("run")
@add_json_option
def verify(run: str) -> None:
    """Check that a run's files are unchanged and consistent.

    RUN is the folder or URL of a run of labels, scores, opinions or a search, the folder of a
    training, or a folder of `mclabel annotate`. The command reads every file. It
    checks digests, labels against their rollouts, duplicate solutions, blocks against the plan and
    their shards' names, and run.json against the shards. It also checks trees, priors, journals,
    checkpoints, people's opinions against the solutions that were shown, and that a finished job
    has all files. It prints each damage and the repair. The exit code is 0 if the run is sound, 1
    if it is damaged, and 2 if there is no run.
    """
    from mclabel.annotate.storage import is_annotation_folder, verify_annotations
    from mclabel.run.shards.store import Store
    from mclabel.run.verify.run import verify as check
    from mclabel.show.progress import StageProgress
    from mclabel.show.solutions import escape_unprintable_text

    if is_annotation_folder(run):
        verification = verify_annotations(run)
    else:
        with StageProgress(errors, "verify", "shards") as stage:
            verification = check(Store(run), on_progress=stage.update)
    if not record_json_result({**asdict(verification), "is_sound": verification.is_sound}):
        console.print(_make_verification_table(verification))
        for note in verification.notes:
            print_lines(f"note: {note}")
        for fault in verification.damage:
            console.print(Text(escape_unprintable_text(str(fault)), style="red"), soft_wrap=True)
        if verification.num_damaged > len(verification.damage):
            console.print(f"… {verification.num_damaged:,} in all", highlight=False)
    if not verification.is_sound:
        sys.exit(EXIT_DAMAGED)


def _make_verification_table(verification: Verification) -> Table:
    """Return a table with the verdict and the numbers of files and records that were read."""
    from mclabel.run.verify.single_files import TRAINING

    table = Table(box=SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    verdict = "sound" if verification.is_sound else f"{verification.num_damaged:,} damaged"
    table.add_row("verdict", verdict, style="bold" if verification.is_sound else "bold red")
    if verification.holds == TRAINING:
        table.add_row("files of the model and of checkpoints", f"{verification.num_files:,}")
        return table
    if verification.holds == "annotations":
        table.add_row("solutions", f"{verification.num_solutions:,}")
        table.add_row("opinions", f"{verification.num_opinions:,}")
        return table
    for noun, count in (
        (f"blocks of {verification.holds}", verification.num_blocks),
        ("solutions", verification.num_solutions),
        ("rollouts", verification.num_rollouts),
        ("priors", verification.num_priors),
        ("journals", verification.num_journals),
    ):
        table.add_row(noun, f"{count:,}")
    return table
