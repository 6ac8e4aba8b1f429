"""The Ray actor: a `LabelWorker` in a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any

import ray

from mclabel.errors import EngineError
from mclabel.labeling.fleet import MAX_LEASES
from mclabel.labeling.worker import Block, BlockReport, LabelWorker, WorkerProgress

PROGRESS_S = 0.5


class LabelActor:
    """Runs blocks concurrently on one engine. Restarted by Ray when its process dies."""

    def __init__(self, make_worker: Callable[[], LabelWorker]) -> None:
        self._make_worker = make_worker
        self._worker: LabelWorker | None = None
        self._loading = asyncio.Lock()

    async def start(self) -> LabelWorker:
        """Load the engine; not in `__init__`, where a failure would restart without end."""
        async with self._loading:
            if self._worker is None:
                worker = self._make_worker()
                await worker.start()
                self._worker = worker
        return self._worker

    async def load(self) -> None:
        """Load the engine, for the driver to wait for."""
        await self.start()

    async def run_block(self, block: Block) -> BlockReport:
        """Label and commit a block."""
        worker = await self.start()
        try:
            return await worker.run_block(block)
        except* EngineError:
            # A dead engine does not come back in this process: let Ray start another one.
            os._exit(1)

    async def progress(self) -> WorkerProgress:
        """A snapshot, answered after a short while so that asking does not cost."""
        await asyncio.sleep(PROGRESS_S)
        worker = await self.start()
        return await worker.progress()


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
