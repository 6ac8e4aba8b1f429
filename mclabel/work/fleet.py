"""Where blocks run: in this process (here), or in Ray actors (`mclabel.work.ray_fleet`).

A fleet takes a book of blocks and gives back reports, each block's exactly once. It leases every
worker as many blocks at a time as keep its engine full, two at least: then there are the next
block's rollouts to sample while the last ones of a block finish. A block whose worker died goes
to another, which replays what the first has journaled, and the commit rule keeps a late attempt
from writing twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.errors import EngineDied
from mclabel.work.leased import Ended, LeasedWork
from mclabel.work.leases import LeaseBook
from mclabel.work.watch import STALL_S, Watch
from mclabel.work.worker import BlockReport, LabelWorker, WorkerProgress

logger = logging.getLogger(__name__)

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
    num_silent: int = 0
    """Of the engines that are loaded, those that have given no sign of work for too long."""
    gpu_hours: float = 0.0
    """Of the engines' GPUs, since each was loaded."""


OnProgress = Callable[[FleetProgress], None]


class Fleet(Protocol):
    """Runs blocks on one or more workers."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Reports of all blocks, in the order they finish; until the book is closed.

        Raises:
            EngineError: engines cannot be loaded, or die whatever they are given.
        """
        ...


class LocalFleet:
    """One worker in this process, without Ray."""

    def __init__(
        self,
        make_worker: Callable[[], LabelWorker],
        *,
        num_gpus: float = 0.0,
        stall_s: float = STALL_S,
    ) -> None:
        """Args:
        make_worker: called once.
        num_gpus: that the engine takes.
        stall_s: seconds of silence under which the engine is never suspected to have stopped.
        """
        self._make_worker, self._num_gpus, self._stall_s = make_worker, num_gpus, stall_s

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        self._engine_s, self._num_failures = 0.0, 0
        with asyncio.Runner() as runner:
            while not book.finished and not book.closed:
                yield from self._run_engine(runner, book, on_progress)

    def _run_engine(
        self, runner: asyncio.Runner, book: LeaseBook, on_progress: OnProgress
    ) -> Iterator[BlockReport]:
        """Until all is done, the book is closed, or the engine died."""
        worker = self._make_worker()
        runner.run(worker.start())
        loaded = time.monotonic()
        watch, was_silent = Watch(stall_s=self._stall_s), False

        def show(progress: WorkerProgress) -> None:
            nonlocal was_silent
            now = time.monotonic()
            engine_s = self._engine_s + now - loaded
            watch.tick(now)
            watch.heard(progress)
            if watch.is_silent and not was_silent:
                logger.warning(
                    "the engine %s. It runs in this process, so it cannot be replaced: if it does "
                    "not go on, kill the job and run it again; with ray.address=local an engine "
                    "that stops is replaced",
                    watch.report(),
                )
            was_silent = watch.is_silent
            on_progress(
                FleetProgress(
                    workers=[progress],
                    num_silent=int(was_silent),
                    num_failures=self._num_failures,
                    gpu_hours=engine_s * self._num_gpus / 3600,
                )
            )

        reports = run_blocks(worker, book, show)
        try:
            while (report := runner.run(_next(reports))) is not None:
                yield report
        except EngineDied as error:
            logger.warning("the engine was lost and is loaded again: %s", error)
            self._num_failures += 1
        finally:
            self._engine_s += time.monotonic() - loaded
            runner.run(reports.aclose())
            runner.run(worker.close())


async def run_blocks(
    worker: LabelWorker, book: LeaseBook, on_progress: Callable[[WorkerProgress], None]
) -> AsyncGenerator[BlockReport]:
    """Run all blocks of a book on one started worker; reports in the order they finish.

    Raises:
        EngineDied: the worker's engine; its blocks are given back to the book.
    """
    work = LeasedWork(worker)
    num_ended = 0
    try:
        progress = await worker.progress()
        while not book.closed and work.failure is None:
            work.begin(book.take(worker, progress.engine, num_ended=num_ended))
            if not work.unfinished:
                return
            ended = await work.ended(POLL_S)
            num_ended = len(ended)
            progress = await worker.progress()
            on_progress(progress)
            for report in _told(ended, worker, book):
                yield report
        failure = work.failure
        await work.give_up()
        for report in _told(work.take_ended(), worker, book):
            yield report
        if isinstance(failure, EngineDied):
            for block_id in work.unfinished:
                book.lost(worker, block_id, str(failure))
        if failure is not None:
            raise failure
    finally:
        await work.give_up()


def _told(ended: Iterable[Ended], worker: LabelWorker, book: LeaseBook) -> Iterator[BlockReport]:
    for block_id, report in ended:
        book.done(worker, block_id)
        if report is not None:
            yield report


async def _next(reports: AsyncGenerator[BlockReport]) -> BlockReport | None:
    return await anext(reports, None)
