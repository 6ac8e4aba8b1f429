"""The lease book of a job, which records which worker runs which blocks, and which blocks are left.

A lease assigns a block, a group of items, to a worker. Blocks are read from a stream on demand, so
memory does not grow with the length of a job. A fleet (`mclabel.run.fleets`) runs the leases and
returns one report per block. If a worker dies, its blocks are leased to other workers, which reuse
the work in their journals. If the first worker commits a block after all, still only one result is
stored.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.core.errors import EngineError
from mclabel.run.running import MAX_SHARED_LOSSES, Lease, SuspectBlock
from mclabel.run.task import ANY_WORDS, Block, RunnerState, TaskWords
from mclabel.run.worker import BlockReport, WorkerProgress

MIN_LEASES, MAX_LEASES = 2, 64
"""Minimum and maximum number of concurrent blocks per worker. With two blocks, items of the next
block keep the engine busy while the last items of a block finish."""
MAX_SET_ASIDE_IN_A_ROW = 3
"""Maximum number of items that are set aside (left out because they killed engines) without any
block finishing in between. At this number the job fails, because the engines are assumed to be at
fault."""
LOGS = "With Ray, the engine's log is in Ray's folder on the engine's node (session_latest/logs)"


def count_additional_leases(
    num_running: int, engine_state: RunnerState, *, num_ended: int = 0
) -> int:
    """Return the number of additional blocks to lease to a worker.

    The aim is that as many requests wait as the engine processes at a time. If each item makes few
    concurrent requests, this takes many blocks. If blocks finish quickly, a worker gets at least
    twice as many blocks as finish between two reports to the driver.

    Args:
        num_running: number of blocks that the worker runs.
        engine_state: state of the worker's engine at the last exchange.
        num_ended: number of blocks that have ended since the previous exchange.
    """
    pace = min(2 * num_ended, MAX_LEASES) - num_running
    return max(0, pace, _count_missing_blocks(num_running, engine_state))


def _count_missing_blocks(num_running: int, engine_state: RunnerState) -> int:
    """Return the number of additional blocks that would keep enough requests waiting."""
    demand, wanted = engine_state.num_live + engine_state.num_waiting, 2 * engine_state.max_live
    if num_running < MIN_LEASES:
        return MIN_LEASES - num_running
    if demand >= wanted:
        return 0
    more = math.ceil(num_running * (wanted / demand - 1)) if demand else num_running
    # Blocks are at most doubled before the next exchange.
    return min(more, num_running, MAX_LEASES - num_running)


class LeaseBook:
    """Record of a job's unfinished blocks and of the workers to which they are leased."""

    def __init__(
        self,
        blocks: Iterable[Block],
        *,
        num_blocks: int,
        journaled: Collection[str] = (),
        words: TaskWords = ANY_WORDS,
    ) -> None:
        """Open a book of blocks, none of which is leased yet.

        Args:
            blocks: blocks to run, with distinct ids.
            num_blocks: approximate number of blocks.
            journaled: ids of blocks for which earlier runs have left journals.
            words: words for the task's items in messages.
        """
        self._blocks = iter(blocks)
        self._num_left = num_blocks
        self._journaled, self._words = journaled, words
        self._released: deque[Block] = deque()
        self._losses: dict[str, int] = {}
        self._running: dict[str, Block] = {}
        self._num_running: Counter[Hashable] = Counter()
        self._ahead: Block | None = None
        self._suspects: dict[str, SuspectBlock] = {}
        self._due_alone: deque[str] = deque()
        """Ids of suspect blocks (blocks during which engines died) that wait until they can run
        alone on an engine."""
        self._examiner: Hashable | None = None
        """Worker that receives no further blocks until it is free to run the next suspect block."""
        self._examining: set[Hashable] = set()
        """Workers that run a suspect block alone."""
        self._num_set_aside_in_a_row = 0
        self.closed = False
        """True if the job is stopping, so that no more blocks are leased."""

    @property
    def finished(self) -> bool:
        """Return whether every block is done."""
        if self._running or self._released or self._due_alone:
            return False
        self._ahead = self._take_next_block()
        return self._ahead is None

    @property
    def num_unfinished(self) -> int:
        """Approximate number of blocks that are not done."""
        return self._num_left + (len(self._released) + len(self._due_alone)) + len(self._running)

    def close(self) -> None:
        """Lease no more blocks. This method may be called from a signal handler."""
        self.closed = True

    def lease_blocks(
        self,
        worker: Hashable,
        engine_state: RunnerState,
        *,
        num_workers: int = 1,
        num_ended: int = 0,
    ) -> list[Lease]:
        """Lease enough blocks to fill a worker's engine, or one suspect block that runs alone.

        Args:
            worker: worker that receives the leases.
            engine_state: state of the worker's engine at the last exchange.
            num_workers: number of ready workers, among which the last blocks are divided.
            num_ended: number of blocks that have ended on the worker since the previous exchange.
        """
        if self.closed or worker in self._examining:
            return []
        num_running = self._num_running[worker]
        if self._due_alone and self._examiner in (None, worker):
            self._examiner = worker
            return [] if num_running else [self._lease_next_suspect(worker)]
        more = count_additional_leases(num_running, engine_state, num_ended=num_ended)
        # Each worker holds at most an even share of the unfinished blocks, including running ones.
        count = min(more, max(1, math.ceil(self.num_unfinished / num_workers)) - num_running)
        leases: list[Lease] = []
        while len(leases) < count and (block := self._take_next_block()) is not None:
            may_have_journals = block.id in self._losses or block.id in self._journaled
            leases.append(Lease(block=block, may_have_journals=may_have_journals))
            self._running[block.id] = block
            self._num_running[worker] += 1
        if self._due_alone and not self._num_running[worker]:
            return [self._lease_next_suspect(worker)]
        return leases

    def mark_done(self, worker: Hashable, block_id: str) -> None:
        """Record that a worker has finished a lease, which covers a whole block or one item of
        it.
        """
        self._end_lease(worker, block_id)
        self._num_set_aside_in_a_row = 0
        suspect = self._suspects.get(block_id)
        if suspect is not None and not suspect.record_survival():
            self._due_alone.appendleft(block_id)
            return
        self._suspects.pop(block_id, None)
        self._losses.pop(block_id, None)

    def release(
        self, worker: Hashable, block_id: str, reason: str, *, may_be_cause: bool = True
    ) -> None:
        """Record that a worker died while it ran a block. The block is leased again before unleased
        ones.

        Args:
            worker: worker that ran the block.
            block_id: id of the block.
            reason: reason why the worker died.
            may_be_cause: False if the block cannot be the cause of the death.

        Raises:
            EngineError: engines keep dying, whatever they run.
        """
        block = self._end_lease(worker, block_id)
        if worker == self._examiner:
            self._examiner = None
        suspect = self._suspects.get(block_id)
        if suspect is not None:
            if may_be_cause and suspect.record_death(reason):
                self._num_set_aside_in_a_row += 1
                if self._num_set_aside_in_a_row >= MAX_SET_ASIDE_IN_A_ROW:
                    raise EngineError(
                        f"engines crashed twice on each of {self._num_set_aside_in_a_row} "
                        f"consecutive {self._words.items}, completing nothing in between. The last "
                        f"crash was in block {block_id}: {reason}. {LOGS}"
                    )
            self._due_alone.appendleft(block_id)
            return
        self._losses[block_id] = self._losses.get(block_id, 0) + may_be_cause
        if self._losses[block_id] >= MAX_SHARED_LOSSES:
            self._suspects[block_id] = SuspectBlock(block, self._words)
            self._due_alone.append(block_id)
        else:
            self._released.append(block)

    def _lease_next_suspect(self, worker: Hashable) -> Lease:
        lease = self._suspects[self._due_alone.popleft()].make_next_lease()
        self._examining.add(worker)
        self._examiner = None
        self._running[lease.block.id] = lease.block
        self._num_running[worker] += 1
        return lease

    def _end_lease(self, worker: Hashable, block_id: str) -> Block:
        self._num_running[worker] -= 1
        self._examining.discard(worker)
        return self._running.pop(block_id)

    def _take_next_block(self) -> Block | None:
        if self._released:
            return self._released.popleft()
        if self._ahead is not None:
            block, self._ahead = self._ahead, None
            return block
        self._num_left = max(0, self._num_left - 1)
        return next(self._blocks, None)


POLL_S = 0.25
"""Seconds between two snapshots of a fleet."""


@dataclass(frozen=True, kw_only=True)
class FleetProgress:
    """Snapshot of a fleet's progress."""

    workers: Sequence[WorkerProgress]
    """Snapshots of the workers whose engine is loaded."""
    num_starting: int = 0
    """Number of engines that are loading or waiting for free resources."""
    stage: str | None = None
    """Name and duration of a loading engine's current stage; None if no engine is known to be
    loading."""
    num_failures: int = 0
    """Number of engines lost so far."""
    num_silent: int = 0
    """Number of loaded engines without activity for longer than `EngineSilenceMonitor.limit_s`."""
    gpu_hours: float = 0.0
    """GPU hours of all engines, each counted from the end of loading."""


OnProgress = Callable[[FleetProgress], None]


class Fleet(Protocol):
    """Protocol of a fleet, which runs blocks on one or more workers."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Run blocks until all are done or the book is closed, and yield reports as blocks finish.

        Raises:
            EngineError: engines cannot be loaded, or keep dying.
        """
