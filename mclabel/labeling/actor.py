"""The Ray actor: a `LabelWorker` in a process of its own.

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
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, TypeVar

import ray

from mclabel.errors import EngineDied
from mclabel.labeling.fleet import run_lease, user_error
from mclabel.labeling.leases import MAX_LEASES
from mclabel.labeling.resources import Place
from mclabel.labeling.suspects import Lease
from mclabel.labeling.worker import BlockReport, LabelWorker, WorkerProgress

T = TypeVar("T")

PROGRESS_S = 0.5
DRAIN_FLUSH_S = 5.0
"""Between two flushes of the journals while the node is about to go."""
LAST_WORDS_S = 2.0
"""For the reason of a dead engine to reach the driver before the process ends."""


class NotLoaded(Exception):
    """The actor was restarted between two calls, and its engine has to be loaded again."""


class LabelActor:
    """Runs blocks concurrently on one engine. Restarted by Ray when its process dies."""

    def __init__(self, make_worker: Callable[[], LabelWorker]) -> None:
        self._make_worker = make_worker
        self._worker: LabelWorker | None = None
        self._dying = False
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="loop", daemon=True).start()
        signal.signal(signal.SIGTERM, self._terminate)

    def node(self) -> str:
        """Id of the node that the actor has found room on."""
        if self._dying:  # and does not answer any more
            time.sleep(2 * LAST_WORDS_S)
        return str(ray.get_runtime_context().get_node_id())

    def load(self) -> None:
        """Load the engine; not in `__init__`, where a failure would restart without end."""
        if self._worker is None:
            self._worker = self._wait(_started(self._make_worker()))

    def run_block(self, lease: Lease) -> BlockReport | None:
        """Do what is leased. A dead engine ends the process: it does not come back."""
        try:
            return self._wait(run_lease(self._loaded(), lease))
        except BaseException as error:
            if isinstance(known := user_error(error), EngineDied):
                self._dying = True
                self._loop.call_soon_threadsafe(self._loop.call_later, LAST_WORDS_S, os._exit, 1)
                raise known from error
            raise

    def progress(self) -> WorkerProgress:
        """A snapshot, answered after a short while so that asking does not cost."""
        return self._wait(_progress(self._loaded()))

    def end(self) -> None:
        """Give up the blocks under way, with their journals, and end the engine."""
        if self._worker is not None:
            self._wait(_ended(self._worker))

    def drain(self) -> None:
        """The node is about to go: write the journals now, and often from now on."""
        if self._worker is not None and not self._worker.draining:
            self._worker.draining = True
            asyncio.run_coroutine_threadsafe(_flush_often(self._worker), self._loop)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._worker is not None:
            self._worker.flush()
        os._exit(128 + number)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _loaded(self) -> LabelWorker:
        if self._worker is None or self._dying:
            raise NotLoaded
        return self._worker


# Not methods: one coroutine among them would make it an async actor.


async def _started(worker: LabelWorker) -> LabelWorker:
    await worker.start()
    return worker


async def _ended(worker: LabelWorker) -> None:
    await worker.give_up()
    await worker.close()


async def _progress(worker: LabelWorker) -> WorkerProgress:
    await asyncio.sleep(PROGRESS_S)
    return await worker.progress()


async def _flush_often(worker: LabelWorker) -> None:
    while True:
        await worker.flush_beside()
        await asyncio.sleep(DRAIN_FLUSH_S)


def make_actor(make_worker: Callable[[], LabelWorker], place: Place) -> Any:
    """Start an actor. Its calls are never retried by Ray: the driver leases blocks anew."""
    remote = ray.remote(LabelActor).options(
        **place.options,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=MAX_LEASES + 4,  # and calls for progress, and the last flush
    )
    return remote.remote(make_worker)
