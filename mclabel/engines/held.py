"""What was computed for rollouts that ended where others are likely to go on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mclabel.engines.cascade import Pools, Row
from mclabel.engines.prefixes import Prefix


@dataclass(eq=False)
class Held:
    """Keys and values of a rollout: of its block, and of its own tokens but the last."""

    context: tuple[int, ...]
    """Prompt and prefix, of which all but the last lie in `prefix`."""
    prefix: Prefix
    content: Tensor
    """Of the chunks, as `Pools.chunks_out` gives them."""

    @property
    def num_chunks(self) -> int:
        """Chunks that the content fills."""
        return int(self.content.shape[2])

    def give(self, row: Row) -> None:
        """Let a rollout go on from here: the ids that were sampled move out of its context."""
        given = row.context[len(self.context) :]
        row.context, row.sampled, row.num_given = self.context, list(given), len(given)


class HeldRollouts:
    """Rollouts that others may go on from, the least recently used first."""

    def __init__(self, pools: Pools, *, max_bytes: int) -> None:
        """Hold none.

        Args:
            pools: where rollouts compute.
            max_bytes: of all that is held.
        """
        self._pools, self._max_bytes = pools, max_bytes
        self._num_bytes = 0
        self._by_ids: OrderedDict[tuple[int, ...], Held] = OrderedDict()
        """By prompt, prefix and sampled ids, without the last one, which is not computed."""

    def put(self, row: Row, prefix: Prefix, chunks: Sequence[int]) -> None:
        """Keep what was computed for a rollout.

        Args:
            row: that has sampled one more token than the chunks hold.
            prefix: that lies in its block.
            chunks: its own.
        """
        ids = (*row.context, *row.sampled[:-1])
        if ids in self._by_ids:
            self._by_ids.move_to_end(ids)
            return
        held = Held(context=row.context, prefix=prefix, content=self._pools.chunks_out(chunks))
        self._by_ids[ids] = held
        self._num_bytes += held.content.nbytes
        while self._num_bytes > self._max_bytes and len(self._by_ids) > 1:
            _, oldest = self._by_ids.popitem(last=False)
            self._num_bytes -= oldest.content.nbytes

    def clear(self) -> None:
        """Forget all rollouts."""
        self._by_ids.clear()
        self._num_bytes = 0

    def get(self, context: tuple[int, ...]) -> Held | None:
        """What was computed for all but the last id of a context, if it is held."""
        if (held := self._by_ids.get(context[:-1])) is not None:
            self._by_ids.move_to_end(context[:-1])
        return held
