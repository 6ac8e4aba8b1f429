"""The lease book of a job: which worker runs which block, and which blocks remain.

Blocks are taken from a stream on demand, so a job of any length costs the same memory. A fleet
(`fleets`) runs the leases and returns one report per block. A block whose worker died goes to
another worker, which replays its journal; the commit rule keeps a late attempt from writing twice.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.core.errors import EngineError
from mclabel.run.running import MAX_SHARED_LOSSES, Lease, Suspect
from mclabel.run.task import ANY_WORDS, Block, RunnerState, TaskWords
from mclabel.run.worker import BlockReport, WorkerProgress

MIN_LEASES, MAX_LEASES = 2, 64
"""Concurrent blocks of a worker: with two, the next block's items run while the last ones end."""
MAX_SET_ASIDE_IN_A_ROW = 3
"""Items that kill engines, with nothing done between: then the engines are at fault."""
LOGS = "With Ray, the engine's log is in its folder on the engine's node (session_latest/logs)"


def num_more_leases(num_running: int, engine: RunnerState, *, num_ended: int = 0) -> int:
    """Return how many more blocks to lease a worker.

    Enough for as many requests to wait as are worked on. A task that asks for little at a time
    needs many blocks for that; the engine works on the earliest ones first. And, where blocks end
    faster than the worker is asked, twice as many as end until then.

    Args:
        num_running: blocks that it runs.
        engine: the engine's state when it was last asked.
        num_ended: blocks that have ended since it was asked before.
    """
    pace = min(2 * num_ended, MAX_LEASES) - num_running
    return max(0, pace, _num_short(num_running, engine))


def _num_short(num_running: int, engine: RunnerState) -> int:
    """Return how many more blocks would meet the engine's demand."""
    demand, wanted = engine.num_live + engine.num_waiting, 2 * engine.max_live
    if num_running < MIN_LEASES:
        return MIN_LEASES - num_running
    if demand >= wanted:
        return 0
    more = math.ceil(num_running * (wanted / demand - 1)) if demand else num_running
    # At most twice as many before looking again.
    return min(more, num_running, MAX_LEASES - num_running)


class LeaseBook:
    """Blocks of a job, each leased until it is done."""

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
            num_blocks: approximate number of the blocks.
            journaled: ids of blocks that earlier runs have left journals of.
            words: names that messages use for the task's items.
        """
        self._blocks = iter(blocks)
        self._num_left = num_blocks
        self._journaled, self._words = journaled, words
        self._released: deque[Block] = deque()
        self._losses: dict[str, int] = {}
        self._running: dict[str, Block] = {}
        self._num_running: Counter[Hashable] = Counter()
        self._ahead: Block | None = None
        self._suspects: dict[str, Suspect] = {}
        self._due_alone: deque[str] = deque()
        """Suspects that wait for an engine of their own."""
        self._examiner: Hashable | None = None
        """The worker that is given no more, so that it can run the next suspect alone."""
        self._examining: set[Hashable] = set()
        """Workers that run a suspect alone."""
        self._num_set_aside_in_a_row = 0
        self.closed = False
        """True if no more blocks are leased: the job is to stop."""

    @property
    def finished(self) -> bool:
        """Return whether every block is done."""
        if self._running or self._released or self._due_alone:
            return False
        self._ahead = self._next()
        return self._ahead is None

    @property
    def num_unfinished(self) -> int:
        """Blocks that are not done, about."""
        waiting = len(self._released) + len(self._due_alone)
        return self._num_left + waiting + len(self._running)

    def close(self) -> None:
        """Lease no more blocks. From a signal's handler."""
        self.closed = True

    def take(
        self, worker: Hashable, engine: RunnerState, *, num_workers: int = 1, num_ended: int = 0
    ) -> list[Lease]:
        """Lease a worker what keeps its engine full, or one block that is to be alone on it.

        Args:
            worker: the worker that asks.
            engine: state of the worker's engine when it was last asked.
            num_workers: number of workers that are ready; they share the last blocks.
            num_ended: blocks that have ended on the worker since it was asked before.
        """
        if self.closed or worker in self._examining:
            return []
        num_running = self._num_running[worker]
        if self._due_alone and self._examiner in (None, worker):
            self._examiner = worker
            return [] if num_running else [self._lease_alone(worker)]
        more = num_more_leases(num_running, engine, num_ended=num_ended)
        # Each worker gets an even share of the unfinished blocks, running ones included, however
        # often it asks.
        share = max(1, math.ceil(self.num_unfinished / num_workers))
        count = min(more, share - num_running)
        leases: list[Lease] = []
        while len(leases) < count and (block := self._next()) is not None:
            replay = block.id in self._losses or block.id in self._journaled
            leases.append(Lease(block=block, replay=replay))
            self._running[block.id] = block
            self._num_running[worker] += 1
        if self._due_alone and not self._num_running[worker]:
            return [self._lease_alone(worker)]
        return leases

    def done(self, worker: Hashable, block_id: str) -> None:
        """Record that a worker has done what it was leased of a block."""
        self._remove(worker, block_id)
        self._num_set_aside_in_a_row = 0
        suspect = self._suspects.get(block_id)
        if suspect is not None and not suspect.passed():
            self._due_alone.appendleft(block_id)
            return
        self._suspects.pop(block_id, None)
        self._losses.pop(block_id, None)

    def release(self, worker: Hashable, block_id: str, reason: str, *, counts: bool = True) -> None:
        """Record that a worker died under a block: it is leased anew, before all others.

        Args:
            worker: the worker that ran the block.
            block_id: id of the block.
            reason: why the worker died.
            counts: False where the block cannot have been the cause.

        Raises:
            EngineError: engines die whatever they are given.
        """
        block = self._remove(worker, block_id)
        if worker == self._examiner:
            self._examiner = None
        suspect = self._suspects.get(block_id)
        if suspect is not None:
            if counts and suspect.failed(reason):
                self._num_set_aside_in_a_row += 1
                if self._num_set_aside_in_a_row >= MAX_SET_ASIDE_IN_A_ROW:
                    raise EngineError(
                        f"engines died twice under each of {self._num_set_aside_in_a_row} "
                        f"{self._words.items} in a row and completed nothing in between: the last "
                        f"in block {block_id}; the last time: {reason}. {LOGS}"
                    )
            self._due_alone.appendleft(block_id)
            return
        self._losses[block_id] = self._losses.get(block_id, 0) + counts
        if self._losses[block_id] >= MAX_SHARED_LOSSES:
            self._suspects[block_id] = Suspect(block, self._words)
            self._due_alone.append(block_id)
        else:
            self._released.append(block)

    def _lease_alone(self, worker: Hashable) -> Lease:
        lease = self._suspects[self._due_alone.popleft()].lease()
        self._examining.add(worker)
        self._examiner = None
        self._running[lease.block.id] = lease.block
        self._num_running[worker] += 1
        return lease

    def _remove(self, worker: Hashable, block_id: str) -> Block:
        self._num_running[worker] -= 1
        self._examining.discard(worker)
        return self._running.pop(block_id)

    def _next(self) -> Block | None:
        if self._released:
            return self._released.popleft()
        if self._ahead is not None:
            block, self._ahead = self._ahead, None
            return block
        self._num_left = max(0, self._num_left - 1)
        return next(self._blocks, None)


POLL_S = 0.25
"""Between two snapshots of a fleet."""


@dataclass(frozen=True, kw_only=True)
class FleetProgress:
    """A snapshot of a fleet."""

    workers: Sequence[WorkerProgress]
    """Snapshots of the engines that are loaded."""
    num_starting: int = 0
    """Engines that wait for room, or load."""
    stage: str | None = None
    """Current stage of an engine that loads, and its seconds; None if none is known to load."""
    num_failures: int = 0
    """Engines lost so far."""
    num_silent: int = 0
    """Loaded engines that have given no sign of life for too long."""
    gpu_hours: float = 0.0
    """Hours of the engines' GPUs, since each engine was loaded."""


OnProgress = Callable[[FleetProgress], None]


class Fleet(Protocol):
    """Runs blocks on one or more workers."""

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        """Yield the reports of all blocks, in the order they finish; until the book is closed.

        Raises:
            EngineError: engines cannot be loaded, or die whatever they are given.
        """
