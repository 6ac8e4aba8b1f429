"""Fleets: the workers of a job, each with one engine. A lease book assigns blocks of items to
workers.

`LocalFleet` is one worker in this process, without Ray. `RayFleet` runs its workers in Ray actors.
Actors are created up to a limit, wait until the cluster has free resources, and take blocks as soon
as their engine is loaded (`mclabel.run.ray_run`).
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
from mclabel.engines.loading import get_current_stage
from mclabel.run.leases import POLL_S, FleetProgress, LeaseBook, OnProgress
from mclabel.run.ray_cluster import Placement, connect_to_ray, list_node_resources
from mclabel.run.ray_run import RayRun
from mclabel.run.running import STALL_S, EngineSilenceMonitor, FinishedLease, RunningBlocks
from mclabel.run.settings import RayConfig
from mclabel.run.worker import BlockReport, Worker, WorkerProgress

logger = logging.getLogger(__name__)

_NO_OTHER = (
    "The engine runs in the job's own process, so it cannot be replaced. End the job if it does "
    "not end by itself, and run the same command again; completed work is kept. With "
    "ray.address=local a stopped engine is replaced"
)


class LocalFleet:
    """A fleet of one worker in this process, without Ray."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        *,
        num_gpus: float = 0.0,
        stall_s: float = STALL_S,
    ) -> None:
        """Prepare a fleet; `run` loads the engine.

        Args:
            make_worker: function that creates a worker; called for every load of the engine.
            num_gpus: number of GPUs that the engine uses.
            stall_s: minimum seconds without activity before the engine is reported as silent.
        """
        self._make_worker, self._num_gpus, self._stall_s = make_worker, num_gpus, stall_s

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Run all blocks, and yield their reports. An engine that dies is loaded again.

        Args:
            book: lease book with the blocks to run.
            on_progress: called repeatedly with a snapshot of the fleet.
        """
        self._engine_s, self._num_failures = 0.0, 0
        with asyncio.Runner() as runner:
            while not book.finished and not book.closed:
                yield from self._run_engine(runner, book, on_progress)

    def _run_engine(
        self, runner: asyncio.Runner, book: LeaseBook, on_progress: OnProgress
    ) -> Iterator[BlockReport]:
        """Load an engine, and run blocks on it until all are done, the lease book is closed, or the
        engine dies.
        """
        worker = self._make_worker()

        def report_start() -> None:
            on_progress(
                FleetProgress(
                    workers=[],
                    num_starting=1,
                    stage=get_current_stage(),
                    num_failures=self._num_failures,
                    gpu_hours=self._engine_s * self._num_gpus / 3600,
                )
            )

        if not runner.run(_load_or_cancel(worker, book, report_start)):
            return
        loaded = time.monotonic()
        watch, was_silent, has_stopped = EngineSilenceMonitor(stall_s=self._stall_s), False, False

        def report_progress(progress: WorkerProgress) -> None:
            nonlocal was_silent, has_stopped
            now = time.monotonic()
            engine_s = self._engine_s + now - loaded
            watch.advance_clock(now)
            watch.record(progress)
            if watch.is_silent and not was_silent:
                logger.warning("the engine %s", watch.describe_silence())
            was_silent = watch.is_silent
            if watch.has_stopped and not has_stopped:
                has_stopped = True
                worker.flush()
                report = f"the engine {watch.describe_silence()}"
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

        reports = run_blocks(worker, book, report_progress)
        try:
            while (report := runner.run(_await_next_report(reports))) is not None:
                yield report
        except EngineDied as error:
            logger.warning("the engine was lost and is loaded again: %s", error)
            self._num_failures += 1
        finally:
            self._engine_s += time.monotonic() - loaded
            runner.run(reports.aclose())
            runner.run(worker.close())


async def _load_or_cancel(
    worker: Worker, book: LeaseBook, report_start: Callable[[], None]
) -> bool:
    """Load the worker's engine, and return True. If the lease book is closed meanwhile, cancel
    loading and return False.

    Args:
        worker: worker that is not started yet.
        book: lease book of the job.
        report_start: called repeatedly while the engine loads.
    """
    loading = asyncio.create_task(worker.start())
    while not loading.done() and not book.closed:
        await asyncio.wait({loading}, timeout=POLL_S)
        if not loading.done():
            report_start()
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
    """Run all blocks of a lease book on one worker, and yield their reports as blocks finish.

    Args:
        worker: started worker.
        book: lease book with the blocks to run.
        on_progress: called repeatedly with a snapshot of the worker.

    Raises:
        EngineDied: the worker's engine died. The lease book has recorded that its running blocks
            must be leased again.
    """
    running = RunningBlocks(worker)
    num_ended = 0
    try:
        progress = await worker.progress()
        while not book.closed and running.failure is None:
            running.start_leases(book.lease_blocks(worker, progress.runner, num_ended=num_ended))
            if not running.unreported_block_ids:
                return
            ended = await running.wait_for_finished_leases(POLL_S)
            num_ended = len(ended)
            progress = await worker.progress()
            on_progress(progress)
            for report in _mark_done(ended, worker, book):
                yield report
        failure = running.failure
        await running.stop()
        for report in _mark_done(running.take_finished_leases(), worker, book):
            yield report
        if isinstance(failure, EngineDied):
            for block_id in running.unreported_block_ids:
                book.release(worker, block_id, str(failure))
        if failure is not None:
            raise failure
    finally:
        await running.stop()


def _mark_done(
    ended: Iterable[FinishedLease], worker: Worker, book: LeaseBook
) -> Iterator[BlockReport]:
    """Mark blocks as done in the lease book, and yield the reports of the committed ones."""
    for block_id, report in ended:
        book.mark_done(worker, block_id)
        if report is not None:
            yield report


async def _await_next_report(reports: AsyncGenerator[BlockReport]) -> BlockReport | None:
    return await anext(reports, None)


class RayFleet:
    """A fleet of workers in the actors of a Ray cluster."""

    def __init__(
        self,
        make_worker: Callable[[], Worker],
        ray: RayConfig,
        *,
        resources: EngineResources = ONE_CPU,
    ) -> None:
        """Prepare a fleet; `run` joins the cluster and creates actors.

        Args:
            make_worker: function that creates a worker; called in each actor.
            ray: settings of the cluster and of the number of engines.
            resources: CPUs and GPUs that each engine needs.
        """
        self._make_worker, self._ray, self._resources = make_worker, ray, resources
        self.stall_s, self.min_engines = ray.stall_s, ray.min_engines
        self.num_gpus = resources.total_gpus

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Run all blocks, and yield their reports. Engines that die are replaced.

        Args:
            book: lease book with the blocks to run.
            on_progress: called repeatedly with a snapshot of the fleet.
        """
        if book.closed:
            return
        connect_to_ray(self._ray.address)
        stop.reinstall_signal_handlers()  # ray.init has replaced the handler of SIGTERM
        run = RayRun(self, book, on_progress)
        try:
            yield from run.run_until_done()
        finally:
            run.stop()

    def new_actor(self) -> tuple[Any, Placement]:
        """Create one more actor, and return its Ray handle and its reserved resources."""
        from mclabel.run.actor import make_actor

        place = Placement.reserve(self._resources)
        return make_actor(self._make_worker, place), place

    def num_wanted_engines(self) -> int:
        """Return the number of actors that should exist now."""
        if self._ray.max_engines is not None:
            return self._ray.max_engines
        return max(self.min_engines, self._count_fitting_engines())

    def check_enough_placed(self, num_placed: int, waited_s: float) -> bool:
        """Return whether `ray.min_engines` actors have been placed, so that work may begin.

        Args:
            num_placed: number of actors that the cluster has placed on a node.
            waited_s: seconds since the actors were requested.

        Raises:
            EngineError: the cluster will never have enough resources, or did not provide them
                within `ray.wait_s`.
        """
        if num_placed >= self.min_engines:
            return True
        hopeless = self._ray.address == "local" and self._count_fitting_engines() < self.min_engines
        if hopeless or waited_s > self._ray.wait_s:
            nodes = ", ".join(
                f"{have.get('CPU', 0):g} CPUs and {have.get('GPU', 0):g} GPUs"
                for have in list_node_resources()
            )
            after = "" if hopeless else f" after ray.wait_s={self._ray.wait_s:g}"
            raise EngineError(
                f"{self._resources}: the cluster has room for only {num_placed} of the "
                f"{self.min_engines} engines (ray.min_engines){after}. The nodes have "
                f"{nodes or 'no CPUs and no GPUs'}. Request less (ray.num_cpus, "
                "ray.num_gpus), or add nodes"
            )
        return False

    def _count_fitting_engines(self) -> int:
        """Return the number of engines that would fit on the nodes if the nodes were empty."""
        return self._resources.count_fitting_engines(list_node_resources())
