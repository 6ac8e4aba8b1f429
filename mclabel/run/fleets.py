"""Fleets: one worker in this process without Ray, or workers in Ray actors, one engine each.

Actors are started up to a limit, wait for room where there is none yet, and take blocks as soon
as their engine is loaded (`ray_run`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from typing import Any

from mclabel.core import stop
from mclabel.core.boundary import report_hang
from mclabel.core.errors import EngineDied, EngineError
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.engines.loading import current_stage
from mclabel.run.leases import POLL_S, FleetProgress, LeaseBook, OnProgress
from mclabel.run.ray_cluster import Place, connect, node_resources
from mclabel.run.ray_run import RayRun
from mclabel.run.running import STALL_S, Ended, RunningBlocks, Watch
from mclabel.run.settings import RayConfig
from mclabel.run.worker import BlockReport, Worker, WorkerProgress

logger = logging.getLogger(__name__)

_NO_OTHER = (
    "It runs in the job's own process, so no other can take its place: end the job if it has not "
    "ended by itself, and run the same command again; completed work is kept. With "
    "ray.address=local an engine that stops is replaced"
)


class LocalFleet:
    """One worker in this process, without Ray."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        *,
        num_gpus: float = 0.0,
        stall_s: float = STALL_S,
    ) -> None:
        """Prepare a fleet; `run` loads the engine.

        Args:
            make_worker: called for every load of the engine.
            num_gpus: GPUs that the engine takes.
            stall_s: seconds of silence under which the engine is never suspected to have stopped.
        """
        self._make_worker, self._num_gpus, self._stall_s = make_worker, num_gpus, stall_s

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Yield the reports of all blocks; an engine that dies is loaded again."""
        self._engine_s, self._num_failures = 0.0, 0
        with asyncio.Runner() as runner:
            while not book.finished and not book.closed:
                yield from self._run_engine(runner, book, on_progress)

    def _run_engine(
        self, runner: asyncio.Runner, book: LeaseBook, on_progress: OnProgress
    ) -> Iterator[BlockReport]:
        """Until all is done, the book is closed, or the engine died."""
        worker = self._make_worker()

        def show_start() -> None:
            on_progress(
                FleetProgress(
                    workers=[],
                    num_starting=1,
                    stage=current_stage(),
                    num_failures=self._num_failures,
                    gpu_hours=self._engine_s * self._num_gpus / 3600,
                )
            )

        if not runner.run(_loaded(worker, book, show_start)):
            return
        loaded = time.monotonic()
        watch, was_silent, has_stopped = Watch(stall_s=self._stall_s), False, False

        def show(progress: WorkerProgress) -> None:
            nonlocal was_silent, has_stopped
            now = time.monotonic()
            engine_s = self._engine_s + now - loaded
            watch.tick(now)
            watch.record(progress)
            if watch.is_silent and not was_silent:
                logger.warning("the engine %s", watch.report())
            was_silent = watch.is_silent
            if watch.has_stopped and not has_stopped:
                has_stopped = True
                worker.flush()
                report = f"the engine {watch.report()}"
                error = EngineError(f"{report}. {_NO_OTHER}")
                report_hang("engines", f"has not ended: {report}", error)
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


async def _loaded(worker: Worker, book: LeaseBook, show: Callable[[], None]) -> bool:
    """Load the worker's engine; False if the book is closed meanwhile, which ends the load.

    Args:
        worker: not started.
        book: the book of leases.
        show: called while it loads.
    """
    loading = asyncio.create_task(worker.start())
    while not loading.done() and not book.closed:
        await asyncio.wait({loading}, timeout=POLL_S)
        if not loading.done():
            show()
    if not loading.done():
        loading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await loading
        await worker.close()
        return False
    loading.result()
    return True


async def run_blocks(
    worker: Worker, book: LeaseBook, on_progress: Callable[[WorkerProgress], None]
) -> AsyncGenerator[BlockReport]:
    """Run all blocks of a book on one started worker; reports in the order they finish.

    Raises:
        EngineDied: the worker's engine; its blocks are released to the book.
    """
    running = RunningBlocks(worker)
    num_ended = 0
    try:
        progress = await worker.progress()
        while not book.closed and running.failure is None:
            running.begin(book.take(worker, progress.runner, num_ended=num_ended))
            if not running.unreported:
                return
            ended = await running.ended(POLL_S)
            num_ended = len(ended)
            progress = await worker.progress()
            on_progress(progress)
            for report in _record(ended, worker, book):
                yield report
        failure = running.failure
        await running.stop()
        for report in _record(running.take_ended(), worker, book):
            yield report
        if isinstance(failure, EngineDied):
            for block_id in running.unreported:
                book.release(worker, block_id, str(failure))
        if failure is not None:
            raise failure
    finally:
        await running.stop()


def _record(ended: Iterable[Ended], worker: Worker, book: LeaseBook) -> Iterator[BlockReport]:
    """Enter what has ended in the book; the reports of the blocks that were committed."""
    for block_id, report in ended:
        book.done(worker, block_id)
        if report is not None:
            yield report


async def _next(reports: AsyncGenerator[BlockReport]) -> BlockReport | None:
    return await anext(reports, None)


class RayFleet:
    """Runs blocks in the actors of a Ray cluster."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        ray: RayConfig,
        *,
        resources: EngineResources = ONE_CPU,
    ) -> None:
        """Prepare a fleet; `run` joins the cluster and starts actors.

        Args:
            make_worker: called in each actor.
            ray: the cluster, and how many engines run there.
            resources: CPUs and GPUs that each engine takes.
        """
        self._make_worker, self._ray, self._resources = make_worker, ray, resources
        self.stall_s, self.min_engines = ray.stall_s, ray.min_engines
        self.num_gpus = resources.total_gpus

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Yield the reports of all blocks; engines that die are replaced."""
        if book.closed:
            return
        connect(self._ray.address)
        stop.install()  # ray.init has taken SIGTERM
        run = RayRun(self, book, on_progress)
        try:
            yield from run.reports()
        finally:
            run.stop()

    def new_actor(self) -> tuple[Any, Place]:
        """Ask the cluster for one more actor."""
        from mclabel.run.actor import make_actor

        place = Place.of(self._resources)
        return make_actor(self._make_worker, place), place

    def num_wanted(self) -> int:
        """Return how many actors there should be now."""
        if self._ray.max_engines is not None:
            return self._ray.max_engines
        return max(self.min_engines, self._room())

    def check_room(self, num_up: int, waited_s: float) -> bool:
        """Return whether enough engines have room for work to begin.

        Args:
            num_up: actors that have found room.
            waited_s: seconds since the cluster was asked.

        Raises:
            EngineError: there is none, and none will come, or it did not come in time.
        """
        if num_up >= self.min_engines:
            return True
        hopeless = self._ray.address == "local" and self._room() < self.min_engines
        if hopeless or waited_s > self._ray.wait_s:
            nodes = ", ".join(
                f"{have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs"
                for have in node_resources()
            )
            after = "" if hopeless else f" after ray.wait_s={self._ray.wait_s:g}"
            raise EngineError(
                f"{self._resources}: room for "
                f"{num_up} of ray.min_engines={self.min_engines} engines{after}. The nodes have: "
                f"{nodes or 'nothing'}. Ask for less (ray.num_cpus, ray.num_gpus), or add nodes"
            )
        return False

    def _room(self) -> int:
        """Return how many engines would fit the nodes if these were empty."""
        return self._resources.room(node_resources())
