"""Long work in pieces: each piece writes a result file and is skipped if that file exists.

A benchmark that was stopped half-way continues with the next piece. A piece writes its result last,
atomically, by one rename. A piece that is repeated must itself reuse what it wrote before.
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
    """A few minutes of work."""

    result: Path
    """Result file, which exists once the piece is done."""
    work: Callable[[], None]
    """Function that writes the result. It runs in another process, so it must be picklable."""


class Pieces:
    """A runner of pieces that runs several at a time."""

    def __init__(self, workers: int = 1) -> None:
        """Create a runner.

        Args:
            workers: number of processes, each with one thread. With one worker, the work is done in
                this process.
        """
        self._workers = workers

    def run(self, pieces: Sequence[Piece]) -> None:
        """Run the pieces that have no result yet, in this order."""
        todo = [piece for piece in pieces if not piece.result.exists()]
        if self._workers == 1:
            for piece in todo:
                _run_and_time(piece)
        elif todo:
            with ProcessPoolExecutor(
                self._workers, mp_context=get_context("spawn"), initializer=_end_with_parent
            ) as pool:
                list(pool.map(_run_and_time, todo))


def in_pieces(
    doc: str | None, run: Callable[[Path, Pieces, BenchmarkSize], dict[str, Any]], workers: int = 1
) -> None:
    """Read a benchmark's command line, run it in pieces, and print its figures.

    Args:
        doc: docstring of the benchmark.
        run: function that returns the figures. It takes the folder that `--out` keeps.
        workers: number of processes; the smoke size always has one.
    """
    parser = SizedParser(doc)
    parser.add_argument("--out", type=Path, help="folder that keeps finished pieces")
    args = parser.read()
    with tempfile.TemporaryDirectory() as scratch:
        pieces = Pieces(1 if args.size is BenchmarkSize.SMOKE else workers)
        finish(run(args.out or Path(scratch), pieces, args.size))


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content) + "\n")
    partial.replace(path)


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended in any way."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_and_time(piece: Piece) -> None:
    began = time.monotonic()
    piece.work()
    print(f"{piece.result.stem}: {time.monotonic() - began:.0f} s", flush=True)
