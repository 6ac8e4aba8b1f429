"""Computed prefixes that rollouts share, kept for those that begin with them or go on where others
ended.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.engines.cascade import Pools, Prefill, Row


@dataclass(eq=False)
class Prefix:
    """Keys and values of one token sequence: [layers, 2, kv heads, tokens, head size]."""

    ids: tuple[int, ...]
    kv: Tensor


class PrefixCache:
    """Prefixes, the least recently used first."""

    def __init__(self, model: PreTrainedModel, pools: Pools, *, max_bytes: int) -> None:
        """Start without prefixes.

        Args:
            model: the model that computes them, loaded with `ATTENTION`.
            pools: memory of the model's keys and values.
            max_bytes: keys and values kept of prefixes that no live rollout uses.
        """
        self._model, self._pools, self._max_bytes = model, pools, max_bytes
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self.num_computed_tokens = 0

    def get(
        self,
        ids: tuple[int, ...],
        waiting: Iterable[tuple[int, ...]],
        *,
        used: Iterable[Prefix | None],
    ) -> Prefix:
        """A computed prefix that begins with `ids`.

        Args:
            ids: token ids of a rollout's context, without the last one.
            waiting: contexts of rollouts that will come soon.
            used: prefixes of live rollouts, which are kept.
        """
        cached = self._prefixes.get(ids)
        if cached is None:
            best, common = None, 0
            for prefix in self._prefixes.values():
                if prefix.ids[: len(ids)] == ids:
                    cached = prefix
                    break
                shared = _common(prefix.ids, ids) if prefix.ids[:1] == ids[:1] else 0
                if shared > common:
                    best, common = prefix, shared
            else:
                longest = max(
                    (w[:-1] for w in waiting if w[: len(ids)] == ids), key=len, default=ids
                )
                cached = self._prefill(longest, best, common)
            if len(self._prefixes) > 1:
                self._evict(used)
        self._prefixes.pop(cached.ids, None)
        self._prefixes[cached.ids] = cached
        return cached

    def clear(self) -> None:
        """Drop all prefixes."""
        self._prefixes.clear()

    @property
    def num_bytes(self) -> int:
        """Bytes of the kept prefixes."""
        return sum(prefix.kv.nbytes for prefix in self._prefixes.values())

    def _prefill(self, ids: tuple[int, ...], start: Prefix | None, common: int) -> Prefix:
        kv = self._pools.empty(1, len(ids))[:, :, 0]
        if start is not None:
            kv[:, :, :, :common] = start.kv[:, :, :, :common]
        if common < len(ids):
            fresh = ids[common:]
            self._model(
                input_ids=torch.tensor([fresh], device=self._model.device),
                position_ids=torch.arange(common, len(ids), device=self._model.device)[None],
                use_cache=False,
                logits_to_keep=1,
                rollouts=Prefill(kv=kv, start=common),
            )
            self.num_computed_tokens += len(fresh)
        return Prefix(ids=ids, kv=kv)

    def _evict(self, used: Iterable[Prefix | None]) -> None:
        kept = {id(prefix) for prefix in used}
        size = self.num_bytes
        for prefix in list(self._prefixes.values()):
            if size <= self._max_bytes:
                return
            if id(prefix) not in kept:
                del self._prefixes[prefix.ids]
                size -= prefix.kv.nbytes


def _common(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return the length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(eq=False)
class Held:
    """Keys and values of a rollout: of its block, and of its own tokens but the last."""

    context: tuple[int, ...]
    """Prompt and prefix, of which all but the last lie in `prefix`."""
    prefix: Prefix
    content: Tensor
    """Content of the chunks, as `Pools.chunks_out` returns it."""

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
        """Start without kept rollouts.

        Args:
            pools: pools in which rollouts compute.
            max_bytes: maximum bytes of all held prefixes.
        """
        self._pools, self._max_bytes = pools, max_bytes
        self._num_bytes = 0
        self._by_ids: OrderedDict[tuple[int, ...], Held] = OrderedDict()
        """Maps token ids of prompt, prefix and sampled text to the kept rollout. The ids lack the
        last sampled token, because its keys and values are not computed."""

    def put(self, row: Row, prefix: Prefix, chunks: Sequence[int]) -> None:
        """Keep the keys and values that were computed for a rollout.

        Args:
            row: a row that has sampled one more token than the chunks hold.
            prefix: the prefix in the row's block.
            chunks: the row's own chunks.
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
        """Drop all kept rollouts."""
        self._by_ids.clear()
        self._num_bytes = 0

    def get(self, context: tuple[int, ...]) -> Held | None:
        """Return the held rollout with all but the last id of a context; None if there is none."""
        if (held := self._by_ids.get(context[:-1])) is not None:
            self._by_ids.move_to_end(context[:-1])
        return held
