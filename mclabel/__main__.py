"""The `mclabel` command, which `python -m mclabel` runs, too.

This module imports little, because its imports run before a Ctrl-C is handled. It imports the
command with all verbs after it has installed the signal handlers.
"""

from __future__ import annotations

import os
import signal
import sys

from mclabel.core.stop import Stopped, handle_stop_signals


def main() -> None:
    """Run the command. A signal ends it with a one-line message, even during its import."""
    # By default, OpenMP threads spin while they wait. This wastes time of cores that other programs
    # use, too. PyTorch reads these variables at its import, and child processes inherit them.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Python's own handler would print a traceback for a Ctrl-C while the interpreter exits.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with handle_stop_signals():
        try:
            from mclabel.cli import main as command

            command()
        except Stopped as stopped:
            print(f"mclabel: {stopped.message}", file=sys.stderr)
            sys.exit(stopped.exit_code)


if __name__ == "__main__":
    main()
