"""The verb `verify`: whether a run is whole."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from mclabel.cli.output import EXIT_DAMAGED, console, errors, json_option, result

if TYPE_CHECKING:
    from mclabel.run.verify.findings import Verification


@click.command()
@click.argument("run")
@json_option
@click.option(
    "--restore-manifest",
    is_flag=True,
    help="First restore run.json from the shards, if it is missing or belongs to another run.",
)
def verify(run: str, restore_manifest: bool) -> None:
    """Check that a run's files are unchanged and consistent.

    RUN is the folder or URL of a run of labels, scores, opinions or a search, or the folder of a
    training (`train`, `rl`). The command reads every file and checks digests, labels against their
    rollouts, duplicate solutions, blocks against the plan and their shards' names, run.json against
    the shards, trees, priors, journals, checkpoints, and files of a finished job that are missing.
    It prints what is damaged and how to repair it. The exit code is 0 if the
    run is sound, 1 if it is damaged, and 2 if there is no run.
    """
    from mclabel.run.shards.restore import restore_manifest as restore
    from mclabel.run.shards.store import Store
    from mclabel.run.verify.run import verify as check
    from mclabel.show.progress import StageProgress
    from mclabel.show.solutions import shown

    if restore_manifest:
        restore(Store(run))
    with StageProgress(errors, "verify", "shards") as stage:
        found = check(Store(run), on_progress=stage.update)
    if not result({**asdict(found), "is_sound": found.is_sound}):
        console.print(_counts(found))
        for note in found.notes:
            console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
        for one in found.damage:
            console.print(Text(shown(str(one)), style="red"), soft_wrap=True)
        if found.num_damaged > len(found.damage):
            console.print(f"… {found.num_damaged:,} in all", highlight=False)
    if not found.is_sound:
        sys.exit(EXIT_DAMAGED)


def _counts(found: Verification) -> Table:
    """What was read, and whether it is sound."""
    from mclabel.run.verify.findings import TRAINING

    table = Table(box=SIMPLE_HEAD, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    said = "sound" if found.is_sound else f"{found.num_damaged:,} damaged"
    table.add_row("verdict", said, style="bold" if found.is_sound else "bold red")
    if found.holds == TRAINING:
        table.add_row("files of the model and of checkpoints", f"{found.num_files:,}")
        return table
    for what, count in (
        ("blocks", found.num_blocks),
        (f"{found.holds} shards", found.num_shards),
        ("solutions", found.num_solutions),
        ("rollouts", found.num_rollouts),
        ("priors", found.num_priors),
        ("journals", found.num_journals),
    ):
        table.add_row(what, f"{count:,}")
    return table
