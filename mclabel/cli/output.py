"""Place where the verbs print, what `--json` prints of them, and how a command ends: with a
message, never a traceback.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click
from rich.console import Console

from mclabel.core.boundary import has_hung_call, on_hang
from mclabel.core.components import outside_components
from mclabel.core.errors import ComponentError, MclabelError
from mclabel.core.extras import install_advice
from mclabel.core.stop import Stopped, end_at_once, end_soon, signalled, stop_signals

if TYPE_CHECKING:
    from mclabel.run.tally import JobReport


# Messages carry text of users and models: nothing in it is markup or an emoji code.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)
F = TypeVar("F", bound=Callable[..., Any])
_RESULT = "mclabel.result"
"""In the context of a verb with `--json`: its result as text, empty until it is known."""


def print_lines(*lines: str) -> None:
    """Print each line as it is, however long."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


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
    """Record the result of a verb, which `--json` prints.

    Args:
        content: a dataclass or a mapping, of values that JSON has, or more of those.

    Returns:
        Whether `--json` prints it, so that tables of it need not be drawn.
    """
    meta = click.get_current_context().meta
    if _RESULT not in meta:
        return False
    from mclabel.show.texts import json_text

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


_MAX_COUNTED = 100_000
"""Most rows left out that are counted by reason, for which they are held in memory."""


def say_left_out(count: int, noun: str, out: str) -> None:
    """Say how many rows or items were left out, and where the reasons are.

    Args:
        count: count of them; nothing is said of none.
        noun: what became of them, such as `problems were left out`.
        out: folder or URL of the output.
    """
    if count:
        from mclabel.run.shards.rejects import read_rejects
        from mclabel.run.shards.store import Store

        kinds = ""
        if count <= _MAX_COUNTED:
            reasons = Counter(reject.reason for reject in read_rejects(Store(out))).most_common()
            kinds = f" ({', '.join(f'{number:,} {reason}' for reason, number in reasons)})"
        errors.print(
            f"{count:,} {noun}{kinds}; the reasons are in {out}/rejects.jsonl",
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


EXIT_BAD_LINES = 1
EXIT_DAMAGED = 1
EXIT_NOTHING = 1
"""All was done as asked, and nothing came of it."""
EXIT_USER_ERROR = 2
EXIT_BUDGET = 3
EXIT_INTERRUPTED = 130
RESUME = "Run the same command again to resume"
OUR_FAULT = (
    "This is a fault of mclabel, not of your input. Please report it with these lines, the command "
    "and the versions in the output's run.json"
)

logger = logging.getLogger(__name__)

# Messages carry text of users and models: nothing in it is markup or an emoji code.
_errors = Console(stderr=True, emoji=False)


def fail(message: str, code: int) -> NoReturn:
    """Print a message and end."""
    _errors.print(f"mclabel: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


@contextmanager
def clear_exits() -> Iterator[None]:
    """End with a message on errors that have one for the user, and on signals, in order.

    What the system refuses (a full disk, a file without permission, a peer that is gone) is no
    fault of the program wherever it comes up, and is said, too. Any other exception is one: it
    keeps its traceback, with the request to report it, unless it comes of a stop.
    """
    with on_hang(_end_hung), stop_signals():
        try:
            yield
        except ComponentError as error:
            if has_hung_call():  # in a thread for which Python would wait for ever
                end_soon(EXIT_USER_ERROR)
            fail(_told(error), EXIT_USER_ERROR)
        except MclabelError as error:
            fail(str(error), EXIT_USER_ERROR)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise  # usage, which click tells itself
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # who read the output has ended; click ends quietly
            fail(_refusal(error), EXIT_USER_ERROR)
        except Stopped as stopped:
            fail(stopped.message, stopped.exit_code)
        except KeyboardInterrupt:
            fail(f"interrupted. {RESUME}", EXIT_INTERRUPTED)
        except Exception as error:
            if (stop := signalled()) is not None:  # of an import, say, that the stop has cut short
                fail(f"{stop.message}. While ending: {_one_line(error)}", stop.exit_code)
            if (
                isinstance(error, ModuleNotFoundError)
                and (message := install_advice(error.name)) is not None
            ):
                fail(message, EXIT_USER_ERROR)
            error.add_note(_whose_fault())
            raise


def show_tracebacks() -> None:
    """Print the traceback of an exception from a user's component before the message."""
    _Shown.tracebacks = True


class _Shown:
    """Errors that this process has printed."""

    tracebacks = False


def _told(error: ComponentError) -> str:
    """The message of a failed component; its traceback before it where it was asked for."""
    logger.info("%s%s", error.trace, error)
    if error.trace and _Shown.tracebacks:
        _errors.print(error.trace, markup=False, highlight=False, soft_wrap=True)
    is_full = _Shown.tracebacks or not error.trace
    return f"{error}" if is_full else f"{error}. Pass --traceback for the full traceback"


def _end_hung(error: MclabelError) -> None:
    """End a command that waits for what does not end: nothing else can be done about it."""
    _errors.print(f"mclabel: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    end_at_once(EXIT_USER_ERROR)


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _whose_fault() -> str:
    """Return advice on whether mclabel or a component from outside has to be fixed."""
    if names := outside_components():
        return (
            f"{', '.join(names)}: this job uses components from outside mclabel. If the lines "
            "above lead into one, or show what it returned, correct it (docs/extending.md "
            f"describes what it must return). Otherwise: {OUR_FAULT}"
        )
    return OUR_FAULT


def _refusal(error: OSError) -> str:
    """Return a message on the operation that the system refused, with the remedy."""
    places = [str(place) for place in (error.filename, error.filename2) if place is not None]
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    where = " to ".join(places) + ": " if places else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{where}{reason}. Completed work is kept. Free some space, and run the same "
            "command again"
        )
    if not places:
        return f"{reason} ({type(error).__name__})"
    return f"{where}{reason}. Give a place that exists and that you may read, or write to"
