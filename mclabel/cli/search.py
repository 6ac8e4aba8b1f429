"""The verb `search`."""

from __future__ import annotations

import click

from mclabel.cli.options import configuration
from mclabel.cli.output import console, errors
from mclabel.exits import EXIT_BUDGET, fail


@click.command()
@configuration("SearchConfig")
@click.option("--address", help="Address of the Ray cluster to join; the same as ray.address=.")
@click.option(
    "--strict",
    is_flag=True,
    help="Stop at the first problem that cannot be searched; the same as strict=true.",
)
@click.option(
    "--accept-changes",
    is_flag=True,
    help="Continue although problems were changed or removed since the run began: search changed "
    "problems again, and leave out the old solutions of changed and removed ones.",
)
def search(
    config: str,
    overrides: tuple[str, ...],
    address: str | None,
    strict: bool,
    accept_changes: bool,
    allow: tuple[str, ...],
) -> None:
    """Search for solutions to problems, steered by a PRM that scores every step.

    CONFIG is a YAML file whose keys can be overridden, such as search=beam search.n=16
    scorer.prm=FOLDER. The output is a run: `mclabel view`, `report` and `export` read its
    finished solutions, and `mclabel label --solutions` labels them. Its trees hold every beginning
    that was sampled, with its scores.

    Running the same command again resumes an interrupted search.
    """
    from mclabel import pipelines
    from mclabel.config import SearchConfig, load_config
    from mclabel.report.terminal.job_progress import job_progress

    given = {"ray.address": address, "strict": strict or None}
    named = [f"{key}={value}" for key, value in given.items() if value is not None]
    checked = load_config(SearchConfig, config, [*named, *overrides], allow=allow)
    with job_progress(console, "search", "problems") as progress:
        report = pipelines.search(checked, progress, accept_changes=accept_changes)
    if report.num_rejected:
        errors.print(
            f"{report.num_rejected:,} problems were left out; the reasons are in "
            f"{checked.out}/rejects.jsonl",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if report.stopped_by is not None:
        fail(
            f"stopped by {report.stopped_by}: {report.num_blocks_left:,} of "
            f"{report.num_blocks:,} blocks are left. Finished blocks are saved. Run the same "
            "command with a larger budget to continue",
            EXIT_BUDGET,
        )
    for line in pipelines.search_lines(checked.out):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
