"""One engine at work: runs the items of blocks and commits them. The same in an actor and here."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mclabel.core.errors import RejectReason, ShardError
from mclabel.engines.loading import starting
from mclabel.run.cpu_executor import LoopLag
from mclabel.run.forecast import Size
from mclabel.run.shards.journal import BlockJournal
from mclabel.run.shards.rejects import note_set_aside
from mclabel.run.shards.store import Store
from mclabel.run.task import Attempt, Block, FinishedBlock, Result, Runner, RunnerState, Task

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_S = 60.0
"""Between two flushes of the journals: what a kill costs of an engine's work."""


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """Result of one attempt at a block."""

    committed: bool
    """False: another attempt had committed the block before."""
    num_items: int
    num_tokens: int
    """Cost of all items, including work taken from a journal."""
    size: Size
    """Amount of text of the items."""
    counts: Mapping[str, int]
    """Named counts of what the block holds, from the task."""


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """A snapshot of a worker. Numbers count from when it was made."""

    worker: str
    """Unique to this incarnation of the worker."""
    num_items: int = 0
    """Items that are done, committed or not."""
    num_open: int = 0
    """Items that are begun and not done."""
    num_done_tokens: int = 0
    """Cost of these items, including work taken from journals."""
    num_open_tokens: int = 0
    """Tokens that the running blocks have cost so far, including items that are not done."""
    num_replayed: int = 0
    """Entries taken from journals."""
    loop_lag_s: float = 0.0
    """The longest time since the last snapshot that something held the event loop."""
    draining: bool = False
    """True if the worker's node is about to go, so that it is given no more blocks."""
    runner: RunnerState


class Worker:
    """Runs blocks of one task and commits them to one store."""

    def __init__(self, task: Task, *, out: str, journal_s: float = JOURNAL_S) -> None:
        """Make a worker, whose engine `start` loads.

        Args:
            task: the work to do with every item.
            out: location of the run's store.
            journal_s: seconds between two flushes of the journals.
        """
        self._task, self._store, self._journal_s = task, Store(out, was_reached=True), journal_s
        self._id = uuid.uuid4().hex[:12]
        self._runner: Runner[Any, Any] = task.runner(self._store)
        self._lag = LoopLag()
        self._journals: dict[str, BlockJournal] = {}
        self._background: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[Any]] = set()
        self._num_items = self._num_open = self._num_replayed = 0
        self._num_done_tokens = self._num_ended_tokens = self._num_replayed_tokens = 0
        self.draining = False
        """True if the node is about to go."""

    async def start(self) -> None:
        """Load the engine."""
        with starting(self._store):
            await self._runner.start()
        create = asyncio.get_running_loop().create_task
        self._background = [
            create(self._lag.watch()),
            create(repeat(self._journal_s, self.flush_beside)),
        ]

    async def run_block(
        self,
        block: Block,
        *,
        replay: bool = False,
        set_aside: Mapping[str, RejectReason] | None = None,
    ) -> BlockReport:
        """Run the items of a block and commit it.

        Args:
            block: the block to run.
            replay: whether earlier attempts may have left journals.
            set_aside: items to leave out, by id.
        """
        left_out = dict(set_aside or {})
        items = [item for item in block.items if item.id not in left_out]
        async with self._attempt(block, replay=replay) as attempt:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run(item, attempt)) for item in items]
            results = [task.result() for task in tasks]
            for item, result in zip(items, results, strict=True):
                if result.set_aside is not None:
                    left_out[item.id] = result.set_aside
            finished = FinishedBlock(
                block=block,
                attempt=attempt.journal.attempt,
                results=list(zip(items, results, strict=True)),
                set_aside=left_out,
                num_tokens=sum(result.num_tokens for result in results),
            )
            report = await _finish(asyncio.to_thread(self._commit, finished))
            self._num_ended_tokens += report.num_tokens
            if replay or attempt.journal.num_files:
                await asyncio.to_thread(attempt.journal.delete)
        return report

    async def try_item(self, block: Block, item_id: str) -> None:
        """Run one item of a block into its journal, to see whether the engine survives it."""
        (item,) = [item for item in block.items if item.id == item_id]
        async with self._attempt(block, replay=True, is_trial=True) as attempt:
            await self._runner.run(item, attempt)
            await asyncio.to_thread(attempt.journal.flush)

    async def stop(self) -> None:
        """End the blocks that are running: commits are finished, the others leave journals."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @asynccontextmanager
    async def _attempt(
        self, block: Block, *, replay: bool, is_trial: bool = False
    ) -> AsyncIterator[Attempt]:
        """Run an attempt at a block. Its journal is flushed if the attempt fails."""
        name = uuid.uuid4().hex[:12]
        journal = BlockJournal(self._store, block.id, name, self._task.read_entry)
        attempt = Attempt(block=block, journal=journal, is_trial=is_trial)
        self._journals[name] = journal
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            if replay:
                await asyncio.to_thread(journal.read)
            await self._runner.begin(attempt)
            yield attempt
        except BaseException:
            journal.flush()
            raise
        finally:
            self._running.discard(task)
            del self._journals[name]
            self._num_replayed += journal.num_replayed
            self._num_replayed_tokens += journal.num_replayed_tokens

    def flush(self) -> None:
        """Write what the blocks that are running have done. From any thread."""
        for journal in list(self._journals.values()):
            journal.flush()

    async def flush_beside(self) -> None:
        """Flush, in a thread. A store that fails now is tried again at the next flush."""
        try:
            await asyncio.to_thread(self.flush)
        except ShardError as error:
            logger.warning("the journals could not be written; the blocks go on: %s", error)

    async def progress(self) -> WorkerProgress:
        """Return what has been done so far."""
        state = self._runner.state()
        journals = self._journals.values()
        replayed = self._num_replayed_tokens + sum(
            journal.num_replayed_tokens for journal in journals
        )
        return WorkerProgress(
            worker=self._id,
            num_items=self._num_items,
            num_open=self._num_open,
            num_done_tokens=self._num_done_tokens,
            num_open_tokens=max(0, state.num_tokens + replayed - self._num_ended_tokens),
            num_replayed=self._num_replayed + sum(journal.num_replayed for journal in journals),
            loop_lag_s=self._lag.take(),
            draining=self.draining,
            runner=state,
        )

    async def close(self) -> None:
        """Free the engine. Call `stop` before, where blocks are running."""
        for task in self._background:
            task.cancel()
        await self._runner.close()

    async def _run(self, item: Any, attempt: Attempt) -> Result:
        self._num_open += 1
        try:
            result: Result = await self._runner.run(item, attempt)
        finally:
            self._num_open -= 1
        self._num_items += 1
        self._num_done_tokens += result.num_tokens
        return result

    def _commit(self, finished: FinishedBlock) -> BlockReport:
        if finished.set_aside:
            note_set_aside(self._store, finished.block.id)
        commit = self._runner.commit(finished)
        return BlockReport(
            committed=commit.won,
            num_items=len(finished.block.items),
            num_tokens=finished.num_tokens,
            size=finished.block.size,
            counts=commit.counts,
        )


async def repeat(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
    """Call a function again and again until cancelled.

    Args:
        seconds: between the end of one call and the next.
        work: the function to call; an awaitable that it returns is awaited.
    """
    while True:
        await asyncio.sleep(seconds)
        due = work()
        if due is not None:
            await due


async def _finish(work: Awaitable[T]) -> T:
    """Return the result of `work`; a cancellation meanwhile is dropped, as it comes too late."""
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
