"""The blocks that run on one worker: the same in an actor and in-process.

Blocks run side by side. Those that have ended are reported together, after a moment in which others
may end, so that blocks of a few milliseconds cost no message each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mclabel.core.errors import EngineDied, MclabelError
from mclabel.run.suspects import Lease
from mclabel.run.worker import BlockReport, Worker

GATHER_S = 0.05
"""From the first block that ends to its report, while others are running."""
RAMP_S = 0.1
"""From new leases to a report, at most: the engine may want as many again."""

Ended = tuple[str, BlockReport | None]
"""Id of a block of which all that was leased is done, and the report if it was committed."""


class RunningBlocks:
    """Runs what a worker is leased. Belongs to its event loop."""

    def __init__(self, worker: Worker) -> None:
        """Begin without any block.

        Args:
            worker: started.
        """
        self._worker = worker
        self._tasks: dict[asyncio.Task[BlockReport | None], str] = {}
        self._has_new = False

    @property
    def unreported(self) -> list[str]:
        """Ids of blocks that are still running, or whose end has not been reported."""
        return list(self._tasks.values())

    @property
    def failure(self) -> BaseException | None:
        """What a block has failed with, if any has; that the engine died, if it is no worse."""
        errors = [error for task in self._tasks if (error := _error(task)) is not None]
        return next((e for e in errors if not isinstance(e, EngineDied)), next(iter(errors), None))

    def begin(self, leases: Iterable[Lease]) -> None:
        """Begin with what is leased."""
        for lease in leases:
            self._has_new = True
            self._tasks[asyncio.create_task(self._run(lease))] = lease.block.id

    async def ended(self, wait_s: float) -> list[Ended]:
        """The blocks that have ended well since the last report, in the order of leases.

        Args:
            wait_s: seconds to wait for the first one; with new leases less.
        """
        if self._has_new:
            wait_s, self._has_new = RAMP_S, False
        if not self._tasks:
            await asyncio.sleep(wait_s)
            return []
        first = asyncio.FIRST_COMPLETED
        done, running = await asyncio.wait(self._tasks, timeout=wait_s, return_when=first)
        if done and running and self.failure is None:
            await asyncio.sleep(GATHER_S)
        return self.take_ended()

    def take_ended(self) -> list[Ended]:
        """The blocks that have ended well by now and were not reported."""
        ended = [task for task in self._tasks if _is_well(task)]
        return [(self._tasks.pop(task), task.result()) for task in ended]

    async def stop(self) -> None:
        """End the blocks that are running: each writes its journal, and a commit is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, lease: Lease) -> BlockReport | None:
        if lease.only is not None:
            await self._worker.try_item(lease.block, lease.only)
            return None
        return await self._worker.run_block(
            lease.block, replay=lease.replay, set_aside=lease.set_aside
        )


def _is_well(task: asyncio.Task[BlockReport | None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


def _error(task: asyncio.Task[BlockReport | None]) -> BaseException | None:
    error = task.exception() if task.done() and not task.cancelled() else None
    return user_error(error) or error


def user_error(error: BaseException | None) -> MclabelError | None:
    """The error with a message for the user inside an error of Ray or of a task group."""
    while error is not None:
        # Ray's own is of the same class as its cause, and its text is the whole traceback.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        inner = inner or getattr(error, "cause", None)
        if inner is None and isinstance(error, MclabelError):
            return error
        error = inner
    return None
