"""Prints the output of commands and the results for `--json`, and exits commands with
messages.

A command that fails for a reason that the user can remedy prints a message without a traceback.
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

from mclabel.core.boundary import has_hung_call, set_hang_action
from mclabel.core.components import list_third_party_components
from mclabel.core.errors import ComponentError, MclabelError
from mclabel.core.extras import advise_installation
from mclabel.core.stop import (
    Stopped,
    end_process_after,
    end_process_at_once,
    get_requested_stop,
    handle_stop_signals,
)

if TYPE_CHECKING:
    from mclabel.run.tally import JobReport


# Messages contain texts of users and models, which must not be read as markup or emoji codes.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)
F = TypeVar("F", bound=Callable[..., Any])
_RESULT = "mclabel.result"
"""Key, in the metadata of click's context, of the result of a verb with `--json`. The value is JSON
text, and empty until the result is known. Without `--json`, the key is missing."""


def print_lines(*lines: str) -> None:
    """Print each line unchanged, without wrapping, even if it is long."""
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def add_json_option(verb: F) -> F:
    """Add the option `--json` to a verb.

    Standard output then contains only the verb's result (`record_json_result`).
    """

    @wraps(verb)
    def run(*args: Any, as_json: bool, **kwargs: Any) -> None:
        if not as_json:
            verb(*args, **kwargs)
            return
        metadata = click.get_current_context().meta
        metadata[_RESULT] = ""
        try:
            with _redirect_stdout_to_stderr():
                verb(*args, **kwargs)
        finally:  # also if the verb ends with an exit code, such as for a damaged run
            click.echo(metadata[_RESULT].encode(), nl=False)  # JSON is UTF-8 in any locale

    help_text = "Print the result as one JSON object; all other output goes to standard error."
    return click.option("--json", "as_json", is_flag=True, help=help_text)(cast("F", run))


def record_json_result(content: Any) -> bool:
    """Record the result of a verb, which `--json` prints.

    Args:
        content: a dataclass or a mapping, whose values are JSON values, dataclasses or mappings.

    Returns:
        True if `--json` prints the result, so that the verb need not print tables.
    """
    metadata = click.get_current_context().meta
    if _RESULT not in metadata:
        return False
    from mclabel.show.texts import format_json

    metadata[_RESULT] = format_json(content)
    return True


def refuse_json_option(missing: str) -> None:
    """Raise a usage error if `--json` is given, because standard output would contain rows instead
    of the result.

    Args:
        missing: option that sends the rows to a file, for the message.
    """
    if _RESULT in click.get_current_context().meta:
        raise click.UsageError(
            f"--json needs {missing}, because the rows go to standard output without it. Add it"
        )


@contextmanager
def _redirect_stdout_to_stderr() -> Iterator[None]:
    """Redirect standard output to standard error, also for child processes.

    A standard stream that the caller of the command has closed is None. Its file descriptor may
    then belong to another file, so it is not redirected.
    """
    stdout_copy = None
    if sys.stdout is not None:
        sys.stdout.flush()
        stdout_copy = os.dup(1)
        stderr_copy = os.open(os.devnull, os.O_WRONLY) if sys.stderr is None else os.dup(2)
        os.dup2(stderr_copy, 1)
        os.close(stderr_copy)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if stdout_copy is not None:
            os.dup2(stdout_copy, 1)
            os.close(stdout_copy)


_MAX_COUNTED = 100_000
"""Maximum number of rejects that are counted by reason, because they are held in memory."""


def print_num_rejected(count: int, noun: str, out: str) -> None:
    """Print how many rows or problems were left out, and the file that lists the reasons.

    Args:
        count: number of rejects; 0 prints nothing.
        noun: text after the number, such as `problems were left out`.
        out: folder or URL of the output.
    """
    if count:
        from mclabel.run.shards.rejects import read_rejects
        from mclabel.run.shards.store import Store

        reasons_note = ""
        if count <= _MAX_COUNTED:
            reasons = Counter(reject.reason for reject in read_rejects(Store(out))).most_common()
            reasons_note = f" ({', '.join(f'{number:,} {reason}' for reason, number in reasons)})"
        errors.print(
            f"{count:,} {noun}{reasons_note}; the reasons are in {out}/rejects.jsonl",
            style="yellow",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def fail_if_stopped(report: JobReport) -> None:
    """End with `EXIT_BUDGET` if a limit has stopped a job before its end."""
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
"""Exit code of a job that ran to its end but has no result, such as no labelled problem."""
EXIT_USER_ERROR = 2
EXIT_BUDGET = 3
EXIT_INTERRUPTED = 130
RESUME = "Run the same command again to resume"
OUR_FAULT = (
    "This is a fault of mclabel, not of your input. Please report it with these lines, the command "
    "and the versions in the output's run.json"
)

logger = logging.getLogger(__name__)


def fail(message: str, code: int) -> NoReturn:
    """Print a message on standard error, and end with an exit code."""
    errors.print(f"mclabel: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


@contextmanager
def exit_with_messages() -> Iterator[None]:
    """End the command with a message, without a traceback, on user errors and on signals.

    An `OSError` (a full disk, a file without permission, a lost connection) also ends with a
    message, because it is not a fault of the program. Any other exception is a fault of the program
    or of a third-party component. It keeps its traceback, with a request to report it, unless a
    signal has caused it.
    """
    with set_hang_action(_print_and_kill_process), handle_stop_signals():
        try:
            yield
        except ComponentError as error:
            if has_hung_call():  # Python would wait for the thread of the call for ever
                end_process_after(EXIT_USER_ERROR)
            fail(_format_component_error(error), EXIT_USER_ERROR)
        except MclabelError as error:
            fail(str(error), EXIT_USER_ERROR)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise  # click prints its own messages
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise  # the reader of the output has ended; click then ends without a message
            fail(_format_os_error(error), EXIT_USER_ERROR)
        except Stopped as stopped:
            fail(stopped.message, stopped.exit_code)
        except KeyboardInterrupt:
            fail(f"interrupted. {RESUME}", EXIT_INTERRUPTED)
        except Exception as error:
            if (
                stop := get_requested_stop()
            ) is not None:  # the signal may have interrupted an import
                line = f"{type(error).__name__}: {' '.join(str(error).split())}"
                fail(f"{stop.message}. While ending: {line}", stop.exit_code)
            if (
                isinstance(error, ModuleNotFoundError)
                and (message := advise_installation(error.name)) is not None
            ):
                fail(message, EXIT_USER_ERROR)
            error.add_note(_build_fault_advice())
            raise


def show_tracebacks_of_errors() -> None:
    """From now on, print the traceback of an exception from a user's component before the
    message.
    """
    _ErrorDisplay.tracebacks = True


class _ErrorDisplay:
    """State of this process for printing errors."""

    tracebacks = False
    """True if `--traceback` was given."""


def _format_component_error(error: ComponentError) -> str:
    """Return the message of a failed component, after printing its traceback if requested."""
    logger.info("%s%s", error.trace, error)
    if error.trace and _ErrorDisplay.tracebacks:
        errors.print(error.trace, markup=False, highlight=False, soft_wrap=True)
    has_traceback = _ErrorDisplay.tracebacks or not error.trace
    return f"{error}" if has_traceback else f"{error}. Pass --traceback for the full traceback"


def _print_and_kill_process(error: MclabelError) -> None:
    """Print the error of a hanging call and exit the process, because the call cannot be
    interrupted.
    """
    errors.print(f"mclabel: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
    end_process_at_once(EXIT_USER_ERROR)


def _build_fault_advice() -> str:
    """Return advice on whether mclabel or a third-party component must be corrected."""
    if names := list_third_party_components():
        return (
            f"{', '.join(names)}: this job uses components from outside mclabel. If the lines "
            "above lead into such a component, or show its result, correct the component "
            f"(docs/extending.md describes what it must return). Otherwise: {OUR_FAULT}"
        )
    return OUR_FAULT


def _format_os_error(error: OSError) -> str:
    """Return a message on an operation that the operating system rejected, with the remedy."""
    paths = [str(path) for path in (error.filename, error.filename2) if path is not None]
    reason = error.strerror or " ".join(str(error).split()) or type(error).__name__
    path_prefix = " to ".join(paths) + ": " if paths else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{path_prefix}{reason}. Completed work is kept. Free some space, and run the same "
            "command again"
        )
    if not paths:
        return f"{reason} ({type(error).__name__})"
    return f"{path_prefix}{reason}. Give a path that exists and that you may read or write"
