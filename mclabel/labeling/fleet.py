"""Where blocks run: in this process (here), or in Ray actors (`mclabel.labeling.ray_fleet`).

A fleet takes a book of blocks and gives back reports, each block's exactly once. It leases every
worker as many blocks at a time as keep its engine full, two at least: then there are the next
block's rollouts to sample while the last ones of a block finish. A block whose worker died goes
to another, which replays what the first has journaled, and the commit rule keeps a late attempt
from writing twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.errors import MclabelError
from mclabel.labeling.leases import LeaseBook
from mclabel.labeling.worker import BlockReport, LabelWorker, WorkerProgress

POLL_S = 0.25


@dataclass(frozen=True, kw_only=True)
class FleetProgress:
    """A snapshot of a fleet."""

    workers: Sequence[WorkerProgress]
    """Of the engines that are loaded."""
    num_starting: int = 0
    """Engines that wait for room, or load."""
    num_failures: int = 0
    """Engines lost so far."""
    gpu_hours: float = 0.0
    """Of the engines' GPUs, since each was loaded."""


OnProgress = Callable[[FleetProgress], None]


class Fleet(Protocol):
    """Runs blocks on one or more workers."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Reports of all blocks, in the order they finish; until the book is closed.

        Raises:
            EngineError: engines cannot be loaded, or a block kills every worker it meets.
        """
        ...


class LocalFleet:
    """One worker in this process, without Ray."""

    def __init__(self, make_worker: Callable[[], LabelWorker], *, num_gpus: float = 0.0) -> None:
        """Args:
        make_worker: called once.
        num_gpus: that the engine takes.
        """
        self._make_worker, self._num_gpus = make_worker, num_gpus

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        with asyncio.Runner() as runner:
            worker = self._make_worker()
            runner.run(worker.start())
            loaded = time.monotonic()

            def show(progress: WorkerProgress) -> None:
                hours = (time.monotonic() - loaded) * self._num_gpus / 3600
                on_progress(FleetProgress(workers=[progress], gpu_hours=hours))

            reports = run_blocks(worker, book, show)
            try:
                while (report := runner.run(_next(reports))) is not None:
                    yield report
            finally:
                runner.run(reports.aclose())
                runner.run(worker.close())


async def run_blocks(
    worker: LabelWorker, book: LeaseBook, on_progress: Callable[[WorkerProgress], None]
) -> AsyncGenerator[BlockReport]:
    """Run all blocks of a book on one started worker; reports in the order they finish."""
    due: set[asyncio.Task[BlockReport]] = set()
    try:
        progress = await worker.progress()
        while not book.closed:
            for lease in book.take(worker, progress.engine):
                due.add(asyncio.create_task(worker.run_block(lease.block, replay=lease.replay)))
            if not due:
                return
            done, due = await asyncio.wait(due, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
            progress = await worker.progress()
            on_progress(progress)
            for task in done:
                if (failure := task.exception()) is not None:
                    raise user_error(failure) or failure
                book.done(worker, task.result().block_id)
                yield task.result()
    finally:  # each block writes its journal as it ends
        for task in due:
            task.cancel()
        await asyncio.gather(*due, return_exceptions=True)


async def _next(reports: AsyncGenerator[BlockReport]) -> BlockReport | None:
    return await anext(reports, None)


def user_error(error: BaseException | None) -> MclabelError | None:
    """The error with a message for the user inside an error of Ray or of a task group."""
    while error is not None and not isinstance(error, MclabelError):
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = inner or getattr(error, "cause", None)
    return error
