"""Exit codes, and how a command or a job's script ends: with a message, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from rich.console import Console

from mclabel.errors import MclabelError
from mclabel.stop import Stopped, stop_signals

EXIT_BAD_LINES = 1
EXIT_DAMAGED = 1
EXIT_USER_ERROR = 2
EXIT_BUDGET = 3
EXIT_INTERRUPTED = 130
RESUME = "Run the same command again to resume"

# Messages carry text of users and models: nothing in it is markup or an emoji code.
_errors = Console(stderr=True, emoji=False)


def fail(message: str, code: int) -> NoReturn:
    """Print a message and end."""
    _errors.print(f"mclabel: {message}", style="red", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)


@contextmanager
def clear_exits() -> Iterator[None]:
    """End with a message on errors that have one for the user, and on signals, in order."""
    with stop_signals():
        try:
            yield
        except MclabelError as error:
            fail(str(error), EXIT_USER_ERROR)
        except Stopped as stopped:
            fail(f"stopped by {stopped}: what was whole is kept. {RESUME}", stopped.exit_code)
        except KeyboardInterrupt:
            fail(f"interrupted. {RESUME}", EXIT_INTERRUPTED)
