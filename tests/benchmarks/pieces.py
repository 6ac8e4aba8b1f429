"""Long work in pieces: each leaves its result in a file, and is skipped where that is there.

A benchmark that is stopped half-way goes on where it was. A piece writes its result last, whole, in
one rename; what it wrote before that it finds again itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any, NoReturn

NOT_DONE = 3
"""Exit code of a benchmark that has pieces left."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some minutes of work."""

    result: Path
    """Is there once it is done."""
    work: Callable[[], None]
    """Writes the result; runs in a process of its own, so it must be picklable."""


class Pieces:
    """Runs pieces, so many side by side, until they are done or the time is over."""

    def __init__(self, *, workers: int, minutes: float | None) -> None:
        """Nothing runs yet.

        Args:
            workers: processes, of one thread each.
            minutes: after which no piece is begun; None for no limit.
        """
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def run(self, pieces: Sequence[Piece]) -> None:
        """Do what is not done yet, in this order.

        Raises:
            SystemExit: with `NOT_DONE`, where the time is over and pieces are left.
        """
        todo = [piece for piece in pieces if not piece.result.exists()]
        if self._workers == 1:
            while todo and not self._is_over():
                _timed(todo.pop(0))
        else:
            todo = self._run_beside(todo)
        if todo:
            _leave(f"{len(todo)} of {len(pieces)} pieces are left. Run the same command again.")

    def _run_beside(self, todo: list[Piece]) -> list[Piece]:
        """What is left when the time is over."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=_end_with_parent
            )
        running: set[Future[None]] = set()
        while running or (todo and not self._is_over()):
            while todo and len(running) < self._workers and not self._is_over():
                running.add(self._pool.submit(_timed, todo.pop(0)))
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                one.result()
        return todo

    def _is_over(self) -> bool:
        return self._end is not None and time.monotonic() >= self._end


def write_json(path: Path, content: Any) -> None:
    """Write a file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content) + "\n")
    partial.replace(path)


def _end_with_parent() -> None:
    """Let this process end when the one that began it has ended, in whatever way."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _timed(piece: Piece) -> None:
    began = time.monotonic()
    piece.work()
    print(f"{piece.result.stem}: {time.monotonic() - began:.0f} s", flush=True)


def _leave(message: str) -> NoReturn:
    print(message, flush=True)
    sys.exit(NOT_DONE)
