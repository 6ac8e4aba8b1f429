"""Caches the keys and values of prefixes that rollouts share, and of ended rollouts.

A new rollout may begin with a cached prefix, or continue an ended rollout.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.engines.cascade import KeyValuePools, LiveRollout, Prefill


@dataclass(eq=False)
class Prefix:
    """Keys and values of one token sequence."""

    ids: tuple[int, ...]
    kv: Tensor
    """Keys (index 0) and values (1) of all tokens, [layers, 2, kv heads, tokens, head size]."""


class PrefixCache:
    """Cache of prefixes. The least recently used prefix is dropped first."""

    def __init__(self, model: PreTrainedModel, pools: KeyValuePools, *, max_bytes: int) -> None:
        """Create an empty cache.

        Args:
            model: the model that computes the prefixes, loaded with `ATTENTION`.
            pools: memory of the model's keys and values.
            max_bytes: maximum bytes of keys and values of all cached prefixes. Prefixes of live
                rollouts are kept even if they exceed this limit.
        """
        self._model, self._pools, self._max_bytes = model, pools, max_bytes
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self.num_computed_tokens = 0

    def get(
        self,
        ids: tuple[int, ...],
        waiting_contexts: Iterable[tuple[int, ...]],
        *,
        live_prefixes: Iterable[Prefix | None],
    ) -> Prefix:
        """Return a prefix that begins with `ids`; compute it if the cache has none.

        Args:
            ids: token ids of a rollout's context, without the last id.
            waiting_contexts: contexts of rollouts that will be admitted soon. If some of them begin
                with `ids`, the longest is computed instead of `ids`.
            live_prefixes: prefixes of live rollouts, which must stay in the cache.
        """
        cached = self._prefixes.get(ids)
        if cached is None:
            best, common = None, 0
            for prefix in self._prefixes.values():
                if prefix.ids[: len(ids)] == ids:
                    cached = prefix
                    break
                shared = (
                    _count_common_prefix_ids(prefix.ids, ids) if prefix.ids[:1] == ids[:1] else 0
                )
                if shared > common:
                    best, common = prefix, shared
            else:
                longest = max(
                    (w[:-1] for w in waiting_contexts if w[: len(ids)] == ids), key=len, default=ids
                )
                cached = self._compute_prefix(longest, best, common)
            if len(self._prefixes) > 1:
                self._evict_unused_prefixes(live_prefixes)
        self._prefixes.pop(cached.ids, None)
        self._prefixes[cached.ids] = cached
        return cached

    @property
    def num_bytes(self) -> int:
        """Total bytes of the cached prefixes."""
        return sum(prefix.kv.nbytes for prefix in self._prefixes.values())

    def _compute_prefix(self, ids: tuple[int, ...], start: Prefix | None, common: int) -> Prefix:
        kv = self._pools.make_zeros(1, len(ids))[:, :, 0]
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

    def _evict_unused_prefixes(self, live_prefixes: Iterable[Prefix | None]) -> None:
        kept = {id(prefix) for prefix in live_prefixes}
        size = self.num_bytes
        for prefix in list(self._prefixes.values()):
            if size <= self._max_bytes:
                return
            if id(prefix) not in kept:
                del self._prefixes[prefix.ids]
                size -= prefix.kv.nbytes


def _count_common_prefix_ids(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """Return the number of ids in the longest common prefix of two sequences."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


@dataclass(eq=False)
class EndedRollout:
    """Keys and values of an ended rollout, without those of its last token."""

    context: tuple[int, ...]
    """Token ids of prompt and prefix. The keys and values of all but the last id are in `prefix`.
    """
    prefix: Prefix
    content: Tensor
    """Copy of the chunks of `KeyValuePools` with the keys and values of the sampled tokens."""

    def move_ids_to(self, row: LiveRollout) -> None:
        """Make a new rollout continue this ended rollout.

        The ids that this rollout sampled move from the new rollout's `context` to its `sampled`.
        """
        given = row.context[len(self.context) :]
        row.context, row.sampled, row.num_given_ids = self.context, list(given), len(given)


class EndedRolloutCache:
    """Cache of ended rollouts that new rollouts may continue.

    The least recently used rollout is dropped first.
    """

    def __init__(self, pools: KeyValuePools, *, max_bytes: int) -> None:
        """Create an empty cache.

        Args:
            pools: memory of the keys and values of live rollouts.
            max_bytes: maximum bytes of the chunks of all kept rollouts.
        """
        self._pools, self._max_bytes = pools, max_bytes
        self._num_bytes = 0
        self._by_ids: OrderedDict[tuple[int, ...], EndedRollout] = OrderedDict()
        """Maps the token ids of prompt, prefix and sampled text to the kept rollout. The last
        sampled token is left out, because its keys and values were not computed."""

    def put(self, row: LiveRollout, prefix: Prefix, chunks: list[int]) -> None:
        """Keep the keys and values that were computed for a rollout.

        Args:
            row: the rollout, which has sampled one more token than the chunks hold.
            prefix: the prefix in the rollout's block.
            chunks: numbers of the rollout's own chunks.
        """
        ids = (*row.context, *row.sampled[:-1])
        if ids in self._by_ids:
            self._by_ids.move_to_end(ids)
            return
        held = EndedRollout(
            context=row.context, prefix=prefix, content=self._pools.chunks[:, :, chunks]
        )
        self._by_ids[ids] = held
        self._num_bytes += held.content.nbytes
        while self._num_bytes > self._max_bytes and len(self._by_ids) > 1:
            _, oldest = self._by_ids.popitem(last=False)
            self._num_bytes -= oldest.content.nbytes

    def get(self, context: tuple[int, ...]) -> EndedRollout | None:
        """Return the ended rollout that a context continues; None if it is not in the cache.

        Its token ids are those of the context without the last id, whose keys are not computed.
        """
        if (held := self._by_ids.get(context[:-1])) is not None:
            self._by_ids.move_to_end(context[:-1])
        return held
