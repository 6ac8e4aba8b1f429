"""Runs the items of blocks on one engine and commits the blocks, in a Ray actor or locally."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from mclabel.core.errors import RejectReason, ShardError
from mclabel.engines.loading import mark_engine_start
from mclabel.run.cpu_executor import LoopLag
from mclabel.run.forecast import Size
from mclabel.run.shards.journal import BlockJournal
from mclabel.run.shards.rejects import create_set_aside_marker
from mclabel.run.shards.store import Store
from mclabel.run.task import Attempt, Block, FinishedBlock, Result, Runner, RunnerState, Task

logger = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_S = 60.0
"""Seconds between two flushes of the journals. A killed engine loses at most this time of work."""


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """Result of one attempt at a block."""

    num_items: int
    num_tokens: int
    """Cost of all items in tokens, including work taken from a journal."""
    size: Size
    """Amount of text of the items."""
    counts: Mapping[str, int]
    """Counts of the block's contents by name, such as `num_solutions`, which the task defines."""


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """A snapshot of a worker. All numbers count from the creation of the worker."""

    worker: str
    """Unique id of the worker; a restarted worker has a new id."""
    num_items: int = 0
    """Number of finished items, committed or not."""
    num_open: int = 0
    """Number of items that have started but are not finished."""
    num_done_tokens: int = 0
    """Cost of the finished items in tokens, including work taken from journals."""
    num_open_tokens: int = 0
    """Cost of the running blocks so far in tokens, including unfinished items."""
    num_replayed: int = 0
    """Number of entries taken from journals."""
    loop_lag_s: float = 0.0
    """Longest time in seconds for which the event loop was blocked since the last snapshot."""
    draining: bool = False
    """True if the worker's node is about to be removed, so that it receives no more blocks."""
    runner: RunnerState
    """State of the worker's runner and engine."""


class Worker:
    """Runs blocks of one task and commits them to one store."""

    def __init__(self, task: Task, *, out: str, journal_s: float = JOURNAL_S) -> None:
        """Create a worker; `start` loads its engine.

        Args:
            task: task that processes every item.
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
        """True if the worker's node is about to be removed."""

    async def start(self) -> None:
        """Load the engine, and start the periodic flushes of the journals."""
        with mark_engine_start():
            await self._runner.start()
        create = asyncio.get_running_loop().create_task
        self._background = [
            create(self._lag.watch()),
            create(repeat_periodically(self._journal_s, self.flush_in_thread)),
        ]

    async def run_block(
        self,
        block: Block,
        *,
        may_have_journals: bool = False,
        set_aside: Mapping[str, RejectReason] | None = None,
    ) -> BlockReport:
        """Run the items of a block and commit it.

        Args:
            block: block to run.
            may_have_journals: True if earlier attempts may have left journals.
            set_aside: reasons of the items that are set aside and not run, by item id.
        """
        left_out = dict(set_aside or {})
        items = [item for item in block.items if item.id not in left_out]
        async with self._open_attempt(block, may_have_journals=may_have_journals) as attempt:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._run_item(item, attempt)) for item in items]
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
            report = await _finish_uncancelled(asyncio.to_thread(self._commit_block, finished))
            self._num_ended_tokens += report.num_tokens
            if may_have_journals or attempt.journal.num_files:
                await asyncio.to_thread(attempt.journal.delete)
        return report

    async def try_item(self, block: Block, item_id: str) -> None:
        """Run one item of a block as a trial, to test whether the engine survives it.

        The work is written to the block's journal and is not committed.
        """
        (item,) = [item for item in block.items if item.id == item_id]
        async with self._open_attempt(block, may_have_journals=True, is_trial=True) as attempt:
            await self._runner.run(item, attempt)
            await asyncio.to_thread(attempt.journal.flush)

    async def stop(self) -> None:
        """Cancel the running blocks. Commits in progress are finished; other blocks write their
        journals.
        """
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    @asynccontextmanager
    async def _open_attempt(
        self, block: Block, *, may_have_journals: bool, is_trial: bool = False
    ) -> AsyncIterator[Attempt]:
        """Open an attempt at a block. If the attempt fails, its journal is flushed."""
        name = uuid.uuid4().hex[:12]
        journal = BlockJournal(self._store, block.id, name, self._task.read_entry)
        attempt = Attempt(block=block, journal=journal, is_trial=is_trial)
        self._journals[name] = journal
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        try:
            if may_have_journals:
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
        """Write the journals of the running blocks. Any thread may call this method."""
        for journal in list(self._journals.values()):
            journal.flush()

    async def flush_in_thread(self) -> None:
        """Flush the journals in a thread. A failure is logged; the next flush tries again."""
        try:
            await asyncio.to_thread(self.flush)
        except ShardError as error:
            logger.warning("the journals could not be written; the blocks continue: %s", error)

    async def progress(self) -> WorkerProgress:
        """Return a snapshot of the worker."""
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
            loop_lag_s=self._lag.take_longest_s(),
            draining=self.draining,
            runner=state,
        )

    async def close(self) -> None:
        """Free the engine. If blocks are running, call `stop` first."""
        for task in self._background:
            task.cancel()
        await self._runner.close()

    async def _run_item(self, item: Any, attempt: Attempt) -> Result:
        self._num_open += 1
        try:
            result: Result = await self._runner.run(item, attempt)
        finally:
            self._num_open -= 1
        self._num_items += 1
        self._num_done_tokens += result.num_tokens
        return result

    def _commit_block(self, finished: FinishedBlock) -> BlockReport:
        if finished.set_aside:
            create_set_aside_marker(self._store, finished.block.id)
        return BlockReport(
            num_items=len(finished.block.items),
            num_tokens=finished.num_tokens,
            size=finished.block.size,
            counts=self._runner.commit(finished),
        )


async def repeat_periodically(seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
    """Call a function repeatedly until cancelled.

    Args:
        seconds: pause before each call, in seconds.
        work: function to call; an awaitable that it returns is awaited.
    """
    while True:
        await asyncio.sleep(seconds)
        due = work()
        if due is not None:
            await due


async def _finish_uncancelled(work: Awaitable[T]) -> T:
    """Await `work` and return its result. A cancellation of the caller does not interrupt
    `work`.
    """
    task = asyncio.ensure_future(work)
    while True:
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise
