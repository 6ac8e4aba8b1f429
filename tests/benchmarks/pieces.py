"""Long work in pieces: each leaves its result in a file, and is skipped where that is there.

A benchmark that is stopped half-way goes on where it was. A piece writes its result last, whole, in
one rename; what it wrote before that it finds again itself.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some minutes of work."""

    result: Path
    """Is there once it is done."""
    work: Callable[[], None]
    """Writes the result; runs in a process of its own, so it must be picklable."""


class Pieces:
    """Runs pieces, so many side by side."""

    def __init__(self, workers: int = 1) -> None:
        """`workers` are processes of one thread each; of one, the work is done in this process."""
        self._workers = workers

    def run(self, pieces: Sequence[Piece]) -> None:
        """Do what is not done yet, in this order."""
        todo = [piece for piece in pieces if not piece.result.exists()]
        if self._workers == 1:
            for piece in todo:
                _timed(piece)
        elif todo:
            with ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=_end_with_parent
            ) as pool:
                list(pool.map(_timed, todo))


def in_pieces(
    doc: str | None, run: Callable[[Path, Pieces, BenchmarkSize], dict[str, Any]], workers: int = 1
) -> None:
    """A benchmark that works in pieces: reads the command line, runs it, prints its figures.

    Args:
        doc: of the benchmark.
        run: gives the figures; takes the folder that is kept with `--out`.
        workers: processes; one at the smoke size.
    """
    parser = SizedParser(doc)
    parser.add_argument("--out", type=Path, help="keep all pieces here, and go on")
    args = parser.read()
    with tempfile.TemporaryDirectory() as scratch:
        pieces = Pieces(1 if args.size is BenchmarkSize.SMOKE else workers)
        finish(run(args.out or Path(scratch), pieces, args.size))


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
