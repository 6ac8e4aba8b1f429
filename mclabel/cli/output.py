"""Where the verbs print, and what `--json` prints of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from rich.console import Console

from mclabel.cli.exits import EXIT_BUDGET, fail

if TYPE_CHECKING:
    from mclabel.run.tally import JobReport

# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)
F = TypeVar("F", bound=Callable[..., Any])
_RESULT = "mclabel.result"
"""In the context of a verb with `--json`: its result as text, empty until it is known."""


def json_option(verb: F) -> F:
    """The option `--json` of a verb: standard output holds what it gives to `result`, alone."""

    @wraps(verb)
    def run(*args: Any, as_json: bool, **kwargs: Any) -> None:
        if not as_json:
            verb(*args, **kwargs)
            return
        meta = click.get_current_context().meta
        meta[_RESULT] = ""
        try:
            with _stdout_aside():
                verb(*args, **kwargs)
        finally:  # also of a verb that ends with an exit code: a damaged run, a spent budget
            click.echo(meta[_RESULT].encode(), nl=False)  # JSON is UTF-8 in any locale

    text = "Print the result as one JSON object; all else that is printed goes to standard error."
    return click.option("--json", "as_json", is_flag=True, help=text)(cast("F", run))


def result(content: Any) -> bool:
    """Take what a verb has come to; docs/formats.md lists the fields.

    Args:
        content: a dataclass or a mapping, of values that JSON has, or more of those.

    Returns:
        Whether `--json` prints it, so that tables of it need not be drawn.
    """
    meta = click.get_current_context().meta
    if _RESULT not in meta:
        return False
    from mclabel.show.files import json_text

    meta[_RESULT] = json_text(content)
    return True


def refuse_json(missing: str) -> None:
    """Refuse `--json` where standard output holds rows."""
    if _RESULT in click.get_current_context().meta:
        raise click.UsageError(
            f"--json needs {missing}, because the rows go to standard output without it. Add it"
        )


@contextmanager
def _stdout_aside() -> Iterator[None]:
    """Let all that is written to standard output, by child processes too, go to standard error.

    One that the caller has closed is None, and its number may be that of another file.
    """
    kept = None
    if sys.stdout is not None:
        sys.stdout.flush()
        kept = os.dup(1)
        aside = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else os.dup(2)
        os.dup2(aside, 1)
        os.close(aside)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


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
