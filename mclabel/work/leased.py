"""What a worker was leased and works on: the same in an actor and in-process.

Blocks run side by side. What has ended is told together, after a moment in which others may end,
so that blocks of a few milliseconds cost no message each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mclabel.errors import EngineDied, MclabelError
from mclabel.work.suspects import Lease
from mclabel.work.worker import BlockReport, LabelWorker

GATHER_S = 0.05
"""From the first block that ends to telling, with others under way."""
RAMP_S = 0.1
"""From new leases to telling, at most: the engine may want as many again."""

Ended = tuple[str, BlockReport | None]
"""Id of a block of which all that was leased is done, and the report if it was committed."""


class LeasedWork:
    """Blocks under way on one worker. Belongs to its event loop."""

    def __init__(self, worker: LabelWorker) -> None:
        """Args:
        worker: started.
        """
        self._worker = worker
        self._due: dict[asyncio.Task[BlockReport | None], str] = {}
        self._has_new = False

    @property
    def unfinished(self) -> list[str]:
        """Ids of the blocks that have not been told to have ended."""
        return list(self._due.values())

    @property
    def failure(self) -> BaseException | None:
        """What a block has failed with, if any has; that the engine died, if it is no worse."""
        errors = [error for task in self._due if (error := _error(task)) is not None]
        return next((e for e in errors if not isinstance(e, EngineDied)), next(iter(errors), None))

    def begin(self, leases: Iterable[Lease]) -> None:
        """Begin with what is leased."""
        for lease in leases:
            self._has_new = True
            self._due[asyncio.create_task(self._run(lease))] = lease.block.id

    async def ended(self, wait_s: float) -> list[Ended]:
        """What has ended well since it was last told, in the order of leases.

        Args:
            wait_s: seconds to wait for the first one; with new leases less.
        """
        if self._has_new:
            wait_s, self._has_new = RAMP_S, False
        if not self._due:
            await asyncio.sleep(wait_s)
            return []
        first = asyncio.FIRST_COMPLETED
        done, due = await asyncio.wait(self._due, timeout=wait_s, return_when=first)
        if done and due and self.failure is None:
            await asyncio.sleep(GATHER_S)
        return self.take_ended()

    def take_ended(self) -> list[Ended]:
        """What has ended well by now and was not told."""
        ended = [task for task in self._due if _is_well(task)]
        return [(self._due.pop(task), task.result()) for task in ended]

    async def give_up(self) -> None:
        """End the blocks under way: each writes its journal, and a commit is finished."""
        for task in self._due:
            task.cancel()
        await asyncio.gather(*self._due, return_exceptions=True)

    async def _run(self, lease: Lease) -> BlockReport | None:
        if lease.only is not None:
            await self._worker.try_problem(lease.block, lease.only)
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
        # Ray's own is of the same class as its cause, and says the whole traceback.
        inner = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        inner = inner or getattr(error, "cause", None)
        if inner is None and isinstance(error, MclabelError):
            return error
        error = inner
    return None
