"""Which item kills engines: a block under which they die is narrowed down to it.

An engine that dies takes all the blocks that it ran with it, and mostly none of them is to blame:
a first loss changes nothing for a block. After a second one it is leased alone: nothing beside it
on the engine. If the engine dies again, its items are tried one by one, each alone, on what the
journals hold. An item that has killed two engines so is set aside, and the block is committed
without it: the death of the whole block counts for the first of its items to kill one alone, so
that a block with one such item costs four engines. What a trial does goes to the journals, so that
nothing of it is done twice.

Counts are the driver's memory: after a restart they begin anew. What was set aside stands in the
metadata of the block's shard (`mclabel.run.shards.rejects`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from mclabel.core.errors import EngineError
from mclabel.core.rejects import RejectReason, bounded
from mclabel.run.task import Block, TaskWords

MAX_SHARED_LOSSES = 2
"""Losses of a block beside others; after these it is leased alone."""
MAX_DEATHS = 2
"""Engines that may die under an item: alone, or once with its block."""
MAX_WHOLE_LOSSES = 5
"""Losses of a block alone, whose items passed one by one."""


@dataclass(frozen=True, kw_only=True)
class Lease:
    """A block that a worker is to run."""

    block: Block
    replay: bool
    """Whether earlier attempts may have left journals."""
    only: str | None = None
    """Id of the one item to try, whose work goes to the journal; None runs and commits all."""
    set_aside: Mapping[str, RejectReason] = field(default_factory=dict)
    """Items that are left out, by id."""


class Suspect:
    """A block that has lost its engine beside others too often."""

    def __init__(self, block: Block, words: TaskWords) -> None:
        """Begin to examine a block.

        Args:
            block: to be leased alone from now on.
            words: of the task.
        """
        self._block, self._words = block, words
        self._set_aside: dict[str, RejectReason] = {}
        self._untried: deque[str] = deque()
        self._deaths = self._whole_losses = 0
        self._unexplained = 0
        """1 after a death of the whole block for which no item has been set aside yet."""

    def lease(self) -> Lease:
        """What to run next, alone on its engine."""
        only = self._untried[0] if self._untried else None
        return Lease(block=self._block, replay=True, only=only, set_aside=dict(self._set_aside))

    def passed(self) -> bool:
        """Record that the engine survived what was leased last.

        Returns:
            Whether the block is done.
        """
        if not self._untried:
            return True
        self._untried.popleft()
        self._deaths = 0
        return False

    def failed(self, reason: str) -> bool:
        """Record that the engine died under what was leased last.

        Returns:
            Whether an item was set aside for it.

        Raises:
            EngineError: engines die under the block, but under none of its items.
        """
        if not self._untried:
            self._whole_losses += 1
            if self._whole_losses >= MAX_WHOLE_LOSSES:
                raise EngineError(
                    f"block {self._block.id} made its engine die {self._whole_losses} times with "
                    f"nothing else running on it, though its {self._words.items} succeed one by "
                    f"one; the last time: {reason}. Make blocks smaller "
                    f"({self._words.block_setting}), or give engines more memory"
                )
            self._untried.extend(
                item.id for item in self._block.items if item.id not in self._set_aside
            )
            self._deaths, self._unexplained = 0, 1
            return False
        self._deaths += 1
        if self._deaths + self._unexplained < MAX_DEATHS:
            return False
        self._set_aside[self._untried.popleft()] = RejectReason("kills_engine", bounded(reason))
        self._deaths = self._unexplained = 0
        return True
