"""The Ray actor: a `LabelWorker` in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import ray

from mclabel.errors import EngineError
from mclabel.labeling.fleet import user_error
from mclabel.labeling.leases import MAX_LEASES
from mclabel.labeling.worker import Block, BlockReport, LabelWorker, WorkerProgress

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
        self._loading = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, self._terminate)

    async def node(self) -> str:
        """Id of the node that the actor has found room on."""
        return str(ray.get_runtime_context().get_node_id())

    async def load(self) -> None:
        """Load the engine; not in `__init__`, where a failure would restart without end."""
        async with self._loading:
            if self._worker is None:
                worker = self._make_worker()
                await worker.start()
                self._worker = worker

    async def run_block(self, block: Block, replay: bool) -> BlockReport:
        """Label and commit a block. A dead engine ends the process: it does not come back."""
        worker = self._loaded()
        try:
            return await worker.run_block(block, replay=replay)
        except BaseException as error:
            if isinstance(known := user_error(error), EngineError):
                asyncio.get_running_loop().call_later(LAST_WORDS_S, os._exit, 1)
                raise known from error
            raise

    async def progress(self) -> WorkerProgress:
        """A snapshot, answered after a short while so that asking does not cost."""
        await asyncio.sleep(PROGRESS_S)
        return await self._loaded().progress()

    async def flush(self) -> None:
        """Write down what the blocks under way have sampled."""
        if self._worker is not None:
            await asyncio.to_thread(self._worker.flush)

    async def drain(self) -> None:
        """The node is about to go: write the journals now, and often from now on."""
        if self._worker is not None and self._draining is None:
            self._worker.draining = True
            self._draining = asyncio.get_running_loop().create_task(self._flush_often())

    async def _flush_often(self) -> None:
        while True:
            await self.flush()
            await asyncio.sleep(DRAIN_FLUSH_S)

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        if self._worker is not None:
            self._worker.flush()
        os._exit(128 + number)

    def _loaded(self) -> LabelWorker:
        if self._worker is None:
            raise NotLoaded
        return self._worker


def make_actor(make_worker: Callable[[], LabelWorker], *, num_cpus: float, num_gpus: float) -> Any:
    """Start an actor. Its calls are never retried by Ray: the driver leases blocks anew."""
    remote = ray.remote(LabelActor).options(
        num_cpus=num_cpus,
        num_gpus=num_gpus,
        max_restarts=-1,
        max_task_retries=0,
        max_concurrency=2 * MAX_LEASES,
    )
    return remote.remote(make_worker)
