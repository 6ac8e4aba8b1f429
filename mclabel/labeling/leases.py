"""The lease book of a job: which worker holds which block, and what is left.

Blocks are taken from a stream as workers want them; the book keeps only those that are out or
were given back, so a job of any length costs it the same.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from mclabel.errors import EngineError
from mclabel.labeling.worker import Block
from mclabel.policy import EngineStats

MIN_LEASES, MAX_LEASES = 2, 64
"""Blocks a worker holds at a time."""
MAX_BLOCK_ATTEMPTS = 5


def num_more_leases(held: int, engine: EngineStats) -> int:
    """How many blocks to lease a worker that holds some.

    Enough for as many completions to wait as are sampled. An estimator that asks for little at a
    time needs many blocks for that; the engine samples the earliest ones first.

    Args:
        held: blocks it holds.
        engine: its engine, as last seen.
    """
    demand, wanted = engine.num_live + engine.num_waiting, 2 * engine.max_live
    if held < MIN_LEASES:
        return MIN_LEASES - held
    if demand >= wanted:
        return 0
    more = math.ceil(held * (wanted / demand - 1)) if demand else held
    return min(more, held, MAX_LEASES - held)  # at most twice as many before looking again


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A block that is to be labelled."""

    block: Block
    replay: bool
    """Earlier attempts may have left journals."""


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
        self.closed = False
        """Whether no more blocks are leased: the job is to stop."""

    @property
    def finished(self) -> bool:
        """Whether every block is done."""
        if self._out or self._given_back:
            return False
        self._ahead = self._next()
        return self._ahead is None

    @property
    def num_unfinished(self) -> int:
        """Blocks that are not done, about."""
        return self._num_left + len(self._given_back) + len(self._out)

    def held(self, worker: Hashable) -> int:
        """Blocks that a worker holds."""
        return self._held[worker]

    def close(self) -> None:
        """Lease no more blocks. From a signal's handler."""
        self.closed = True

    def take(self, worker: Hashable, engine: EngineStats, *, num_workers: int = 1) -> list[Lease]:
        """Lease a worker what keeps its engine full.

        Args:
            worker: that is to have them.
            engine: its engine, as last seen.
            num_workers: among which the last blocks are shared.
        """
        if self.closed:
            return []
        share = math.ceil((self._num_left + len(self._given_back)) / num_workers)
        count = min(num_more_leases(self._held[worker], engine), max(1, share))
        leases: list[Lease] = []
        while len(leases) < count and (block := self._next()) is not None:
            replay = block.id in self._losses or block.id in self._journaled
            leases.append(Lease(block=block, replay=replay))
            self._out[block.id] = block
            self._held[worker] += 1
        return leases

    def done(self, worker: Hashable, block_id: str) -> None:
        """A worker has labelled a block."""
        del self._out[block_id]
        self._losses.pop(block_id, None)
        self._held[worker] -= 1

    def lost(self, worker: Hashable, block_id: str, reason: str, *, counts: bool = True) -> None:
        """A worker died under a block: it is leased anew, before all others.

        Args:
            worker: that held it.
            block_id: of the block.
            reason: why the worker died.
            counts: False where the block cannot have been the cause.

        Raises:
            EngineError: too many workers died under it.
        """
        block = self._out.pop(block_id)
        self._held[worker] -= 1
        self._losses[block_id] = self._losses.get(block_id, 0) + counts
        if self._losses[block_id] >= MAX_BLOCK_ATTEMPTS:
            raise EngineError(
                f"block {block_id} lost its engine {MAX_BLOCK_ATTEMPTS} times (problems "
                f"{', '.join(p.id for p in block.problems)}); the last time: {reason}"
            )
        self._given_back.append(block)

    def _next(self) -> Block | None:
        if self._given_back:
            return self._given_back.popleft()
        if self._ahead is not None:
            block, self._ahead = self._ahead, None
            return block
        self._num_left = max(0, self._num_left - 1)
        return next(self._blocks, None)
