"""PRMs beside the labels: scores of single solutions, from a process of their own.

Models stay out of the server, which is small and quick to start.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import MclabelError

if TYPE_CHECKING:
    from mclabel.prm.scoring.score import PRM

MAX_CHARACTERS = 200_000
"""Of a solution that is scored."""


class Scorers:
    """PRMs by name, loaded in a child process at the first use of each."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        """Name PRMs, which are loaded when they are first asked for.

        Args:
            folders: by name, outputs of `mclabel train` that have ended.
        """
        self.folders = dict(folders)
        self._pool: ProcessPoolExecutor | None = None

    def scores(self, problem: str, steps: list[str]) -> dict[str, Any]:
        """By PRM: its `kind`, and a score a step or the `reason` why there are none."""
        if sum(map(len, steps)) > MAX_CHARACTERS:
            reason = f"longer than {MAX_CHARACTERS:,} characters"
            return {name: {"kind": None, "reason": reason} for name in self.folders}
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                1,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=signal.signal,
                initargs=(signal.SIGINT, signal.SIG_IGN),  # the server ends it
            )
        try:
            futures = {
                name: self._pool.submit(_score, folder, problem, steps)
                for name, folder in self.folders.items()
            }
            return {name: future.result() for name, future in futures.items()}
        except BrokenProcessPool:
            self.close()
            reason = "the scoring process died, perhaps for memory; open the solution again"
            return {name: {"kind": None, "reason": reason} for name in self.folders}

    def close(self) -> None:
        """End the child process."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


def _score(folder: str, problem: str, steps: list[str]) -> dict[str, Any]:
    try:
        prm = _load(folder)
    except MclabelError as error:
        return {"kind": None, "reason": str(error)}
    try:
        return {"kind": prm.manifest.kind, "scores": prm.score([problem], [steps])[0]}
    except MclabelError as error:
        return {"kind": prm.manifest.kind, "reason": str(error)}


@lru_cache
def _load(folder: str) -> PRM:
    from mclabel.prm.scoring.score import PRM

    # On the CPU: a page that stays open would keep a GPU's memory from the jobs it shows.
    return PRM.load(folder, device="cpu", threads=1)
