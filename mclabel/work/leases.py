"""The lease book of a job: which worker holds which block, and what is left.

Blocks are taken from a stream as workers want them; the book keeps only those that are out or
were given back, so a job of any length costs it the same. Those under which engines die again and
again are leased alone, until it is known which of their problems kills (`suspects`).
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable

from mclabel.engines import EngineStats
from mclabel.errors import EngineError
from mclabel.work.suspects import MAX_SHARED_LOSSES, Lease, Suspect
from mclabel.work.worker import Block

MIN_LEASES, MAX_LEASES = 2, 64
"""Blocks a worker holds at a time."""
MAX_SET_ASIDE_IN_A_ROW = 3
"""Problems that kill engines, with nothing done between: then it is the engines' fault."""
LOGS = "With Ray, the engine's log is in its folder on the engine's node (session_latest/logs)"


def num_more_leases(held: int, engine: EngineStats, *, num_ended: int = 0) -> int:
    """How many blocks to lease a worker that holds some.

    Enough for as many completions to wait as are sampled. An estimator that asks for little at a
    time needs many blocks for that; the engine samples the earliest ones first. And, where blocks
    end faster than the worker is asked, twice as many as end until then.

    Args:
        held: blocks it holds.
        engine: its engine, as last seen.
        num_ended: blocks that have ended since it was asked before.
    """
    pace = min(2 * num_ended, MAX_LEASES) - held
    return max(0, pace, _num_short(held, engine))


def _num_short(held: int, engine: EngineStats) -> int:
    """Blocks that the engine's demand is short of."""
    demand, wanted = engine.num_live + engine.num_waiting, 2 * engine.max_live
    if held < MIN_LEASES:
        return MIN_LEASES - held
    if demand >= wanted:
        return 0
    more = math.ceil(held * (wanted / demand - 1)) if demand else held
    return min(more, held, MAX_LEASES - held)  # at most twice as many before looking again


class LeaseBook:
    """Blocks of a job, each leased until it is done."""

    def __init__(
        self, blocks: Iterable[Block], *, num_blocks: int, journaled: Collection[str] = ()
    ) -> None:
        """Args:
        blocks: to be done, with distinct ids.
        num_blocks: how many those are, about.
        journaled: ids of blocks that earlier runs have left journals of.
        """
        self._blocks = iter(blocks)
        self._num_left = num_blocks
        self._journaled = journaled
        self._given_back: deque[Block] = deque()
        self._losses: dict[str, int] = {}
        self._out: dict[str, Block] = {}
        self._held: Counter[Hashable] = Counter()
        self._ahead: Block | None = None
        self._suspects: dict[str, Suspect] = {}
        self._accused: deque[str] = deque()
        self._examiner: Hashable | None = None
        self._examining: set[Hashable] = set()
        self._num_set_aside_in_a_row = 0
        self.closed = False
        """Whether no more blocks are leased: the job is to stop."""

    @property
    def finished(self) -> bool:
        """Whether every block is done."""
        if self._out or self._given_back or self._accused:
            return False
        self._ahead = self._next()
        return self._ahead is None

    @property
    def num_unfinished(self) -> int:
        """Blocks that are not done, about."""
        return self._num_left + len(self._given_back) + len(self._accused) + len(self._out)

    def held(self, worker: Hashable) -> int:
        """Blocks that a worker holds."""
        return self._held[worker]

    def close(self) -> None:
        """Lease no more blocks. From a signal's handler."""
        self.closed = True

    def take(
        self, worker: Hashable, engine: EngineStats, *, num_workers: int = 1, num_ended: int = 0
    ) -> list[Lease]:
        """Lease a worker what keeps its engine full, or one block that is to be alone on it.

        Args:
            worker: that is to have them.
            engine: its engine, as last seen.
            num_workers: that are ready; the last blocks are shared among them.
            num_ended: blocks that have ended on the worker since it was asked before.
        """
        if self.closed or worker in self._examining:
            return []
        if self._accused and self._examiner in (None, worker):
            self._examiner = worker  # it is given no more, until it holds nothing
            return [] if self._held[worker] else [self._accuse(worker)]
        more = num_more_leases(self._held[worker], engine, num_ended=num_ended)
        # Of all that is not done, also of what is out: who asks more often gets no more.
        share = max(1, math.ceil(self.num_unfinished / num_workers))
        count = min(more, share - self._held[worker])
        leases: list[Lease] = []
        while len(leases) < count and (block := self._next()) is not None:
            replay = block.id in self._losses or block.id in self._journaled
            leases.append(Lease(block=block, replay=replay))
            self._out[block.id] = block
            self._held[worker] += 1
        if self._accused and not self._held[worker]:
            return [self._accuse(worker)]
        return leases

    def done(self, worker: Hashable, block_id: str) -> None:
        """A worker has done what it was leased of a block."""
        self._release(worker, block_id)
        self._num_set_aside_in_a_row = 0
        suspect = self._suspects.get(block_id)
        if suspect is not None and not suspect.passed():
            self._accused.appendleft(block_id)
            return
        self._suspects.pop(block_id, None)
        self._losses.pop(block_id, None)

    def lost(self, worker: Hashable, block_id: str, reason: str, *, counts: bool = True) -> None:
        """A worker died under a block: it is leased anew, before all others.

        Args:
            worker: that held it.
            block_id: of the block.
            reason: why the worker died.
            counts: False where the block cannot have been the cause.

        Raises:
            EngineError: engines die whatever they are given.
        """
        block = self._release(worker, block_id)
        if worker == self._examiner:
            self._examiner = None
        suspect = self._suspects.get(block_id)
        if suspect is not None:
            if counts and suspect.failed(reason):
                self._num_set_aside_in_a_row += 1
                if self._num_set_aside_in_a_row >= MAX_SET_ASIDE_IN_A_ROW:
                    raise EngineError(
                        f"engines died twice under each of {self._num_set_aside_in_a_row} "
                        f"problems in a row, with nothing done between: the last in block "
                        f"{block_id}; the last time: {reason}. {LOGS}"
                    )
            self._accused.appendleft(block_id)
            return
        self._losses[block_id] = self._losses.get(block_id, 0) + counts
        if self._losses[block_id] >= MAX_SHARED_LOSSES:
            self._suspects[block_id] = Suspect(block)
            self._accused.append(block_id)
        else:
            self._given_back.append(block)

    def _accuse(self, worker: Hashable) -> Lease:
        lease = self._suspects[self._accused.popleft()].lease()
        self._examining.add(worker)
        self._examiner = None
        self._out[lease.block.id] = lease.block
        self._held[worker] += 1
        return lease

    def _release(self, worker: Hashable, block_id: str) -> Block:
        self._held[worker] -= 1
        self._examining.discard(worker)
        return self._out.pop(block_id)

    def _next(self) -> Block | None:
        if self._given_back:
            return self._given_back.popleft()
        if self._ahead is not None:
            block, self._ahead = self._ahead, None
            return block
        self._num_left = max(0, self._num_left - 1)
        return next(self._blocks, None)
