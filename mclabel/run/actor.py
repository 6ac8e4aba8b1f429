"""The Ray actor that runs a `Worker` in its own process.

The driver, the process that leads the job, calls `exchange` repeatedly: each call passes new leases
to the actor and returns the blocks that have ended. The actor runs an event loop in a thread, and
its methods wait for that loop. It is not one of Ray's async actors, because in these no code of
mclabel runs in the main thread, so nothing could handle a SIGTERM, which Ray itself delays until
the last call has returned.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, TypeVar

import ray

from mclabel.core.errors import EngineDied
from mclabel.core.stop import end_process_at_once, kill_descendants, list_shared_memory_files
from mclabel.engines.loading import get_current_stage
from mclabel.run.ray_cluster import Placement
from mclabel.run.running import FinishedLease, Lease, RunningBlocks
from mclabel.run.worker import Worker, WorkerProgress, repeat_periodically

T = TypeVar("T")

PROGRESS_S = 0.5
"""Maximum duration of a call of `exchange` in seconds, if no block ends."""
MAX_CALLS = 6
"""Maximum number of concurrent calls of an actor's methods: one of `exchange`, and those that close
the engine. Further calls wait."""
DRAIN_FLUSH_S = 5.0
"""Seconds between two flushes of the journals while the node is about to be removed."""
LAST_REPLY_S = 2.0
"""Seconds between the report of a dead engine to the driver and the exit of the process."""
CLOSE_S = 8.0
"""Maximum seconds to wait until an engine closes after its work has stopped."""


class EngineNotLoaded(Exception):
    """Error if the actor was restarted between two calls, so that its engine must be loaded
    again.
    """


@dataclass(frozen=True, kw_only=True)
class ExchangeReply:
    """Reply of an actor to its driver, sent a few times a second."""

    progress: WorkerProgress
    ended: Sequence[FinishedLease]
    """Blocks that have ended since the last reply."""
    failed: bool
    """True if a block has failed. The actor then takes no more leases, and its next exchange raises
    the error."""


class WorkerActor:
    """Runs blocks concurrently on one engine. Ray restarts the actor when its process dies."""

    def __init__(self, make_worker: Callable[[], Worker]) -> None:
        """Start an actor without an engine; `load` creates the worker.

        Args:
            make_worker: function that creates the worker.
        """
        self._make_worker = make_worker
        self._worker: Worker | None = None
        self._running: RunningBlocks | None = None
        self._load_number = -1
        self._dying = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        signal.signal(signal.SIGTERM, self._flush_and_exit)

    def node(self) -> str:
        """Return the id of the node on which the actor was placed."""
        if self._dying:  # do not return: the process is about to exit
            time.sleep(2 * LAST_REPLY_S)
        return str(ray.get_runtime_context().get_node_id())

    def load(self, load_number: int) -> None:
        """Load the engine.

        This is not done in `__init__`, where a failure would make Ray restart the actor endlessly.

        Args:
            load_number: number of this load, counted by the driver. A later call of `exchange` with
                another number is refused, because its leases were made for an earlier load.
        """
        if self._worker is None:
            worker = self._make_worker()
            self._wait_for_result(worker.start())
            self._worker = worker
        self._running, self._load_number = RunningBlocks(self._worker), load_number

    def stage(self) -> str | None:
        """Return the name and duration of the loading engine's current stage as a text; None if no
        engine is loading.
        """
        return get_current_stage()

    def exchange(self, load_number: int, leases: Sequence[Lease]) -> ExchangeReply:
        """Start the leased blocks, and report the blocks that have ended since the last call.

        The call returns when a block ends, at the latest after `PROGRESS_S`. If the engine is dead,
        the process exits shortly after the call.

        Args:
            load_number: sequence number of the engine load for which the leases were made.
            leases: blocks to start.

        Raises:
            EngineNotLoaded: the engine must be loaded again first.
            EngineDied: the engine died.
        """
        is_stale = load_number != self._load_number
        if self._worker is None or self._running is None or self._dying or is_stale:
            raise EngineNotLoaded
        try:
            return self._wait_for_result(_exchange_leases(self._worker, self._running, leases))
        except EngineDied:
            self._dying = True
            self._loop.call_soon_threadsafe(self._loop.call_later, LAST_REPLY_S, os._exit, 1)
            raise

    def stop_and_close_engine(self) -> None:
        """Stop the running blocks, write their journals, and close the engine.

        A call of `exchange` in progress still reports the blocks that have ended. If the engine is
        still loading, the whole process exits, and this call gets no reply.
        """
        if self._worker is None:
            end_process_at_once(0)
        else:
            self._wait_for_result(_stop_and_close(self._worker))

    def flush_and_kill_process(self) -> None:
        """Write the journals, then kill this process and its children; called if the engine stopped
        responding.
        """
        if self._worker is not None:
            self._worker.flush()
        end_process_at_once(1)

    def drain(self) -> None:
        """Write the journals now and every `DRAIN_FLUSH_S`, because the node will be removed."""
        if (worker := self._worker) is not None and not worker.draining:
            worker.draining = True
            for flush in (
                worker.flush_in_thread(),
                repeat_periodically(DRAIN_FLUSH_S, worker.flush_in_thread),
            ):
                asyncio.run_coroutine_threadsafe(flush, self._loop)

    def _flush_and_exit(self, number: int, frame: FrameType | None) -> None:
        if self._worker is not None:
            self._worker.flush()
        os._exit(128 + number)

    def _wait_for_result(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


# These are functions and not methods, because a single coroutine method would turn `WorkerActor`
# into an async actor.


async def _stop_and_close(worker: Worker) -> None:
    """Stop the blocks and close the engine. Kill the engine's child processes that do not exit in
    time.
    """
    memory = list_shared_memory_files()
    try:
        await worker.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await worker.close()
    finally:
        kill_descendants(memory)


async def _exchange_leases(
    worker: Worker, running: RunningBlocks, leases: Sequence[Lease]
) -> ExchangeReply:
    running.start_leases(leases)
    ended = await running.wait_for_finished_leases(PROGRESS_S)
    failure = running.failure
    if failure is not None and not ended:
        raise failure
    return ExchangeReply(progress=await worker.progress(), ended=ended, failed=failure is not None)


def make_actor(make_worker: Callable[[], Worker], placement: Placement) -> Any:
    """Create an actor. Ray does not retry calls to it, because the driver leases lost blocks
    again.
    """
    return (
        ray.remote(WorkerActor)
        .options(
            **placement.options, max_restarts=-1, max_task_retries=0, max_concurrency=MAX_CALLS
        )
        .remote(make_worker)
    )
