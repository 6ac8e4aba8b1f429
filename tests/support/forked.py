"""Processes forked from a server process that has imported the packages of most commands.

The imports of a command cost several seconds of CPU time, and its work in a test mostly costs less.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        *("mclabel.jobs", "mclabel.prm.training.trainer", "mclabel.judge.critic"),
        *("mclabel.engines.openai", "openai.resources.batches", "anyio._backends._asyncio"),
        *("click", "rich.progress"),
        *("transformers.models.llama.modeling_llama", "transformers.models.auto.tokenization_auto"),
        "transformers.tokenization_utils_tokenizers",
    ]
)  # mclabel.cli is left out, since its consoles fix their width at import


def run_to_end(program: Callable[[], object], stdout: str, stderr: str) -> None:
    """Run a program in this process, with a separate process group and output, until it fully ends.

    Like an interpreter, the process first joins its threads, above all those of pools, and then
    runs its exit functions. Multiprocessing would instead wait for a pool's processes before it
    stops them.
    """
    os.setsid()
    for number, path in enumerate((stdout, stderr), 1):
        with open(path, "a") as file:
            os.dup2(file.fileno(), number)
    try:
        program()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()


class Forked:
    """A `python` process with these arguments and the methods of `subprocess.Popen`.

    Its environment is that in which the first `Forked` process was started. Each process has its
    own session.
    """

    def __init__(self, *arguments: object, folder: Path | None = None, **variables: str) -> None:
        """Start the process.

        Args:
            arguments: arguments of the command `mclabel`, or a script and its arguments.
            folder: working folder; None for that of this process.
            variables: additional environment variables.
        """
        self._output = tempfile.NamedTemporaryFile()  # noqa: SIM115 - as long as this
        process_arguments = (list(map(str, arguments)), folder, self._output.name, variables)
        self._process = CONTEXT.Process(target=_run_command, args=process_arguments)
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end of the process and return its stdout and stderr together."""
        self._process.join(timeout)
        output = Path(self._output.name).read_text()
        assert self.returncode is not None, f"The process has not ended: {output}"
        return output, None


def _run_command(
    arguments: list[str], folder: Path | None, output: str, variables: dict[str, str]
) -> None:
    os.environ.update(variables)
    os.chdir(folder or ".")
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(arguments[0]))
        run_to_end(lambda: runpy.run_path(arguments[0], run_name="__main__"), output, output)
    else:
        sys.argv[1:] = arguments
        run_to_end(lambda: runpy.run_module("mclabel", run_name="__main__"), output, output)
