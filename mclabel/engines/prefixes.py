"""Computed prefixes that rollouts share, kept for the next rollouts that begin with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.engines.cascade import Pools, Prefill


@dataclass(eq=False)
class Prefix:
    """Keys and values of one token sequence: [layers, 2, kv heads, tokens, head size]."""

    ids: tuple[int, ...]
    kv: Tensor


class PrefixCache:
    """Prefixes, the least recently used first."""

    def __init__(self, model: PreTrainedModel, pools: Pools, *, max_bytes: int) -> None:
        """Hold no prefix.

        Args:
            model: that computes them, loaded with `ATTENTION`.
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
            ids: of a rollout's context, without the last.
            waiting: contexts of rollouts that will come soon.
            used: prefixes of live rollouts, which are kept.
        """
        found = self._prefixes.get(ids)
        if found is None:
            best, common = None, 0
            for prefix in self._prefixes.values():
                if prefix.ids[: len(ids)] == ids:
                    found = prefix
                    break
                shared = _common(prefix.ids, ids) if prefix.ids[:1] == ids[:1] else 0
                if shared > common:
                    best, common = prefix, shared
            else:
                longest = max(
                    (w[:-1] for w in waiting if w[: len(ids)] == ids), key=len, default=ids
                )
                found = self._prefill(longest, best, common)
            if len(self._prefixes) > 1:
                self._evict(used)
        self._prefixes.pop(found.ids, None)
        self._prefixes[found.ids] = found
        return found

    def clear(self) -> None:
        """Forget all prefixes."""
        self._prefixes.clear()

    @property
    def num_bytes(self) -> int:
        """Memory of the prefixes that are kept."""
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
    """Length of the common beginning."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low
