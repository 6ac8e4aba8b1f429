"""The Ray actor: a `Worker` in a process of its own.

It has an event loop in a thread, and methods that wait for it, rather than being one of Ray's
async actors: in those nothing of ours runs in the main thread, so none could answer a SIGTERM,
which Ray itself puts off until the last call has returned.
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
from mclabel.core.stop import end_at_once, kill_children, shared_memory
from mclabel.engines.loading import current_stage
from mclabel.run.ray_cluster import Place
from mclabel.run.running import Ended, Lease, RunningBlocks
from mclabel.run.worker import Worker, WorkerProgress, repeat

T = TypeVar("T")

PROGRESS_S = 0.5
"""Seconds after which an exchange ends, whether a block has ended or not."""
MAX_CALLS = 6
"""Concurrent calls: an exchange, and those that end the engine; the others may wait."""
DRAIN_FLUSH_S = 5.0
"""Seconds between two flushes of the journals while the node is about to be removed."""
LAST_ANSWER_S = 2.0
"""Seconds for the reason of a dead engine to reach the driver before the process ends."""
CLOSE_S = 8.0
"""Seconds for an engine to end by itself once its work has stopped."""


class NotLoaded(Exception):
    """The actor was restarted between two calls, and its engine has to be loaded again."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Report of an actor to its driver, made a few times a second."""

    progress: WorkerProgress
    ended: Sequence[Ended]
    """Blocks that have ended since the last exchange."""
    failed: bool
    """True if a block has failed: the actor takes no more leases, and its next exchange raises
    why."""


class WorkerActor:
    """Runs blocks concurrently on one engine. Restarted by Ray when its process dies."""

    def __init__(self, make_worker: Callable[[], Worker]) -> None:
        """Begin an actor without an engine; `load` makes the worker.

        Args:
            make_worker: called by `load`.
        """
        self._make_worker = make_worker
        self._worker: Worker | None = None
        self._running: RunningBlocks | None = None
        self._load_number = -1
        self._dying = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        signal.signal(signal.SIGTERM, self._terminate)

    def node(self) -> str:
        """Return the id of the node on which the actor was placed."""
        if self._dying:  # it does not answer any more
            time.sleep(2 * LAST_ANSWER_S)
        return str(ray.get_runtime_context().get_node_id())

    def load(self, number: int) -> None:
        """Load the engine; not in `__init__`, where a failure would restart without end.

        Args:
            number: number of this load, by the driver's count. Exchanges of an earlier load,
                which may still be running, are refused.
        """
        if self._worker is None:
            worker = self._make_worker()
            self._wait(worker.start())
            self._worker = worker
        self._running, self._load_number = RunningBlocks(self._worker), number

    def stage(self) -> str | None:
        """Return what the loading engine does, and for how long; None if it does not load."""
        return current_stage()

    def exchange(self, number: int, leases: Sequence[Lease]) -> Exchange:
        """Begin with what is leased, and report what has ended; at once, or after a short while.

        A dead engine ends the process: it does not come back.

        Args:
            number: number of the load that the leases were made for.
            leases: blocks to begin.
        """
        is_stale = number != self._load_number
        if self._worker is None or self._running is None or self._dying or is_stale:
            raise NotLoaded
        try:
            return self._wait(_exchange(self._worker, self._running, leases))
        except EngineDied:
            self._dying = True
            self._loop.call_soon_threadsafe(self._loop.call_later, LAST_ANSWER_S, os._exit, 1)
            raise

    def end(self) -> None:
        """Stop the running blocks, which leave their journals, and end the engine.

        The exchange that is running reports what was whole. An engine that is still loading cannot
        be asked to end: the process ends with it, and gives no answer.
        """
        if self._worker is None:
            end_at_once(0)
        else:
            self._wait(_ended(self._worker))

    def abandon(self) -> None:
        """Write the journals of a stopped engine, and end the process and its children."""
        if self._worker is not None:
            self._worker.flush()
        end_at_once(1)

    def drain(self) -> None:
        """Write the journals now, and often from now on, as the node will be removed."""
        if (worker := self._worker) is not None and not worker.draining:
            worker.draining = True
            for flush in (worker.flush_beside(), repeat(DRAIN_FLUSH_S, worker.flush_beside)):
                asyncio.run_coroutine_threadsafe(flush, self._loop)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._worker is not None:
            self._worker.flush()
        os._exit(128 + number)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


# Not methods: one coroutine among them would make it an async actor.


async def _ended(worker: Worker) -> None:
    """Stop the blocks and end the engine; what does not end in time is killed."""
    memory = shared_memory()
    try:
        await worker.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await worker.close()
    finally:
        kill_children(memory)


async def _exchange(worker: Worker, running: RunningBlocks, leases: Sequence[Lease]) -> Exchange:
    running.begin(leases)
    ended = await running.ended(PROGRESS_S)
    failure = running.failure
    if failure is not None and not ended:
        raise failure
    return Exchange(progress=await worker.progress(), ended=ended, failed=failure is not None)


def make_actor(make_worker: Callable[[], Worker], place: Place) -> Any:
    """Start an actor. Its calls are never retried by Ray: the driver leases blocks anew."""
    return (
        ray.remote(WorkerActor)
        .options(**place.options, max_restarts=-1, max_task_retries=0, max_concurrency=MAX_CALLS)
        .remote(make_worker)
    )
