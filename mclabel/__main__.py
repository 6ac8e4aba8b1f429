"""The `mclabel` command, and the same as `python -m mclabel`.

What is imported here comes before a Ctrl-C is answered in order, so it is little: the command with
all its verbs is imported once the signals are handled.
"""

from __future__ import annotations

import os
import signal
import sys

from mclabel.core.stop import Stopped, stop_signals


def main() -> None:
    """Run the command; a signal ends it with one line, also while it is being imported."""
    # By default OpenMP's threads spin while they wait, which wastes most of the time of cores that
    # other programs use, too. PyTorch reads this when it is imported; other processes inherit it.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Python's own would answer a Ctrl-C while the interpreter ends with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    with stop_signals():
        try:
            from mclabel.cli import main as command

            command()
        except Stopped as stopped:
            print(f"mclabel: {stopped.message}", file=sys.stderr)
            sys.exit(stopped.exit_code)


if __name__ == "__main__":
    main()
