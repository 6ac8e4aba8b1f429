"""Processes forked from one that has imported what many commands need.

The imports of a command cost several seconds of a core, and its work in a test mostly less.
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
)  # without mclabel.cli, whose consoles take their width when it is imported


def run_to_end(program: Callable[[], object], stdout: str, stderr: str) -> None:
    """Run a program in this process: in a group and with output of its own, to its very end.

    That is the end of an interpreter: threads first, above all those of pools, then what is left to
    it. Multiprocessing would wait for a pool's processes before it tells them to end.
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
    """`python` with these arguments, with the methods of `subprocess.Popen`.

    It has the environment that the first of them was begun in, and a session of its own.
    """

    def __init__(self, *arguments: object, folder: Path | None = None, **variables: str) -> None:
        """Begin it.

        Args:
            arguments: of the command `mclabel`, or a script and its arguments.
            folder: that it is run in; None for this process's.
            variables: of the environment, beside those from before.
        """
        self._output = tempfile.NamedTemporaryFile()  # noqa: SIM115 - as long as this
        given = (list(map(str, arguments)), folder, self._output.name, variables)
        self._process = CONTEXT.Process(target=_run, args=given)
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
        """What it has printed on both its outputs, once it has ended."""
        self._process.join(timeout)
        output = Path(self._output.name).read_text()
        assert self.returncode is not None, f"it has not ended: {output}"
        return output, None


def _run(arguments: list[str], folder: Path | None, output: str, variables: dict[str, str]) -> None:
    os.environ.update(variables)
    os.chdir(folder or ".")
    if arguments[0].endswith(".py"):
        sys.argv = arguments
        sys.path.insert(0, os.path.dirname(arguments[0]))
        run_to_end(lambda: runpy.run_path(arguments[0], run_name="__main__"), output, output)
    else:
        sys.argv[1:] = arguments
        run_to_end(lambda: runpy.run_module("mclabel", run_name="__main__"), output, output)
