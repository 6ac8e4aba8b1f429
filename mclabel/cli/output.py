"""Where the verbs print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from mclabel.cli.exits import EXIT_BUDGET, fail

if TYPE_CHECKING:
    from mclabel.run.tally import JobReport

# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


def say_left_out(count: int, what: str, out: str) -> None:
    """Say how many rows or items were left out, and where the reasons are.

    Args:
        count: of them; nothing is said of none.
        what: what became of them, such as `problems were left out`.
        out: folder or URL of the output.
    """
    if count:
        errors.print(
            f"{count:,} {what}; the reasons are in {out}/rejects.jsonl",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def fail_if_stopped(report: JobReport) -> None:
    """End with `EXIT_BUDGET` where a limit has stopped a job before its end."""
    if report.stopped_by is not None:
        fail(
            f"stopped by {report.stopped_by}: {report.num_blocks_left:,} of "
            f"{report.num_blocks:,} blocks are left. Finished blocks are saved. Run the same "
            "command with a larger budget to continue",
            EXIT_BUDGET,
        )
