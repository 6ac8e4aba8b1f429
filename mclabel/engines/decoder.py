"""Batched sampling of many rollouts with any transformers causal LM of full attention.

Keeps the prefixes that rollouts share, gives rollouts lanes and memory, and samples one token for
all of them at each step (`cascade` has the attention). Rollouts of one context that are admitted
together share a lane, and its computation, until they sample different tokens: each draws its own
from the distribution that they have in common, so they stay independent. A small model, sure of
its words, is sampled several times as fast that way. Rollouts join and leave between any two
steps. Single-threaded; the caller owns the loop.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.engines.cascade import CHUNK, LANES, Batch, Lane, Pools, Prefill, Row
from mclabel.errors import EngineError


@dataclass(eq=False)
class _Prefix:
    """Keys and values of one token sequence: [layers, 2, kv heads, tokens, head size]."""

    ids: tuple[int, ...]
    kv: Tensor


class SharedPrefixDecoder:
    """Samples one token for every live rollout at each `step`."""

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        end_ids: Iterable[int],
        temperature: float,
        top_p: float = 1.0,
        top_k: int = 0,
        max_live: int = 256,
        max_context: int | None = None,
        stops: Callable[[Sequence[int]], bool] | None = None,
        prefix_cache_bytes: int = 256 * 2**20,
    ) -> None:
        """Args:
        model: decoder with full attention in every layer, loaded with `ATTENTION`.
        end_ids: tokens that end a completion.
        temperature: >= 0; 0 is greedy.
        top_p: in (0, 1].
        top_k: 0 for all tokens.
        max_live: rollouts at a time.
        max_context: tokens of context and rollout, at most what the model was made for.
        stops: whether a rollout ends with the last of the ids sampled so far, by its text.
        prefix_cache_bytes: keys and values kept of prefixes that no live rollout uses.

        Raises:
            EngineError: the model's attention is not plain full attention.
        """
        config = model.config.get_text_config()
        _check_supported(model, config)
        self._model, self._end_ids = model, frozenset(end_ids)
        self.device = model.device
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self.max_live, self._cache_bytes = max_live, prefix_cache_bytes
        self.max_context: float = min(config.max_position_embeddings, max_context or inf)
        self._stops = stops
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._pools = Pools(
            layers=config.num_hidden_layers,
            kv_heads=kv_heads,
            queries_per_head=heads // kv_heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=model.dtype,
            device=model.device,
        )
        # Twice the lanes that max_live needs: blocks are seldom full.
        self._max_blocks = max(1, 2 * -(-max_live // LANES))
        self._prefixes: OrderedDict[tuple[int, ...], _Prefix] = OrderedDict()
        self._block_prefix: list[_Prefix | None] = []
        self._lanes: list[Lane | None] = []  # by slot = block * LANES + place in it
        self._fresh: dict[tuple[tuple[int, ...], int], Lane] = {}
        """Lanes that have not sampled yet, by context and budget."""
        self._parked: list[tuple[Lane, _Prefix]] = []
        """Lanes that have parted from others and wait for a slot."""
        self._num_live = 0
        self.num_prefill_tokens = 0
        self.num_sampled_tokens = 0

    @property
    def num_live(self) -> int:
        """Rollouts being sampled."""
        return self._num_live

    @property
    def lanes(self) -> list[Lane]:
        """What a step computes, by slot."""
        return [lane for lane in self._lanes if lane is not None]

    @torch.inference_mode()
    def admit(self, row: Row, waiting: Iterable[tuple[int, ...]] = ()) -> bool:
        """Take a rollout in; False when there is no room for it now.

        Args:
            row: its context leaves room for at least one token.
            waiting: contexts of rollouts that will come soon. If one of them begins with
                this row's context, the longest is computed now for all of them.
        """
        if self._num_live >= self.max_live:
            return False
        lane = self._fresh.get((row.context, row.max_tokens))
        if lane is None:
            lane = Lane(rows=[])
            prefix = self._prefix_of(row.context[:-1], waiting)
            if not self._place(lane, prefix):
                return False
            self._fresh[row.context, row.max_tokens] = lane
        lane.rows.append(row)
        self._num_live += 1
        return True

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Sample one token for every live rollout; returns those that ended, now gone."""
        self._parked = [(lane, on) for lane, on in self._parked if not self._place(lane, on)]
        self._fresh.clear()
        lanes = self.lanes
        if not lanes:
            return []
        tokens = self._sample(self._forward(lanes), lanes)
        ended: list[Row] = []
        parting: list[tuple[Lane, list[Row]]] = []
        for lane, chosen in zip(lanes, tokens, strict=True):
            self.num_sampled_tokens += len(chosen)
            going_on: dict[int, list[Row]] = {}
            for row, token in zip(lane.rows, chosen, strict=True):
                row.sampled.append(token)
                if token in self._end_ids or len(row.sampled) >= self._budget(row):
                    ended.append(row)
                else:
                    going_on.setdefault(token, []).append(row)
            for token, rows in list(going_on.items()):
                if self.ended_by_text(rows[0]):
                    ended += going_on.pop(token)
            if not going_on:
                self._release(lane)
                continue
            lane.rows, *others = going_on.values()
            parting += [(lane, rows) for rows in others]
        self._part(parting)
        self._num_live -= len(ended)
        return ended

    def _part(self, parting: Sequence[tuple[Lane, list[Row]]]) -> None:
        """Give rollouts that chose another token than their lane a lane of their own."""
        copies: list[tuple[int, int]] = []
        for lane, rows in parting:
            new = Lane(rows=rows, chunks=[self._take_chunk() for _ in lane.chunks])
            copies += zip(lane.chunks, new.chunks, strict=True)
            prefix = self._block_prefix[lane.slot // LANES]
            assert prefix is not None
            if not self._place(new, prefix):
                self._parked.append((new, prefix))
        if copies:
            self._pools.copy_chunks(*zip(*copies, strict=True))

    def ended_by_token(self, row: Row) -> bool:
        """Whether a rollout that ended did so by an end token rather than its budget."""
        return bool(row.sampled) and row.sampled[-1] in self._end_ids

    def ended_by_text(self, row: Row) -> bool:
        """Whether the last token of a rollout completed a text that ends it."""
        return self._stops is not None and self._stops(row.sampled)

    def _budget(self, row: Row) -> float:
        return min(row.max_tokens, self.max_context - len(row.context))

    def logits(self) -> Tensor:
        """Next-token logits [lanes, vocabulary]."""
        with torch.inference_mode():
            return self._forward(self.lanes)

    # The forward pass

    def _take_chunk(self) -> int:
        return self._pools.take_chunk(at_least=256)

    def _forward(self, lanes: Sequence[Lane]) -> Tensor:
        for lane in lanes:
            if lane.num_own >= len(lane.chunks) * CHUNK:
                lane.chunks.append(self._take_chunk())
        batch = Batch(self._pools, lanes)
        output = self._model(
            input_ids=torch.tensor([[lane.last for lane in lanes]], device=self.device),
            position_ids=batch.positions[None],
            use_cache=False,
            rollouts=batch,
        )
        logits: Tensor = output.logits[0]
        return logits.float() if logits.dtype.itemsize < 4 else logits

    def _sample(self, logits: Tensor, lanes: Sequence[Lane]) -> list[list[int]]:
        """A token for every rollout of every lane."""
        if self._temperature == 0:
            best = logits.argmax(-1).tolist()
            return [[token] * len(lane.rows) for lane, token in zip(lanes, best, strict=True)]
        probabilities = torch.softmax(
            _warped(logits, self._temperature, self._top_k, self._top_p), -1
        )
        cumulative = probabilities.double().cumsum(-1)
        counts = np.array([len(lane.rows) for lane in lanes])
        there = np.arange(counts.max()) < counts[:, None]
        draws = np.zeros(there.shape)
        draws[there] = uniform([row for lane in lanes for row in lane.rows])
        places = torch.from_numpy(draws).to(self.device) * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, places, right=True).clamp(max=logits.shape[1] - 1)
        rows = zip(tokens.tolist(), counts.tolist(), strict=True)
        return [chosen[:count] for chosen, count in rows]

    # Blocks and prefixes

    def _place(self, lane: Lane, prefix: _Prefix) -> bool:
        """Give a lane a slot beside its prefix; False if all are taken."""
        slot = self._free_slot(prefix)
        if slot is None:
            return False
        lane.slot, self._lanes[slot] = slot, lane
        return True

    def _free_slot(self, prefix: _Prefix) -> int | None:
        for block, held in enumerate(self._block_prefix):
            if held is prefix:
                for slot in range(block * LANES, (block + 1) * LANES):
                    if self._lanes[slot] is None:
                        return slot
        if None in self._block_prefix:
            block = self._block_prefix.index(None)
        elif len(self._block_prefix) < self._max_blocks:
            block = len(self._block_prefix)
            self._block_prefix.append(None)
            self._lanes += [None] * LANES
        else:
            return None
        self._pools.fill_block(block, prefix.kv)
        self._block_prefix[block] = prefix
        return block * LANES

    def _release(self, lane: Lane) -> None:
        self._lanes[lane.slot] = None
        self._pools.free_chunks(lane.chunks)
        block = lane.slot // LANES
        if all(other is None for other in self._lanes[block * LANES : (block + 1) * LANES]):
            self._block_prefix[block] = None

    def _prefix_of(self, ids: tuple[int, ...], waiting: Iterable[tuple[int, ...]]) -> _Prefix:
        """A computed prefix that begins with `ids`."""
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
                self._evict()
        self._prefixes.pop(found.ids, None)
        self._prefixes[found.ids] = found
        return found

    def _prefill(self, ids: tuple[int, ...], start: _Prefix | None, common: int) -> _Prefix:
        kv = self._pools.empty(1, len(ids))[:, :, 0]
        if start is not None:
            kv[:, :, :, :common] = start.kv[:, :, :, :common]
        if common < len(ids):
            fresh = ids[common:]
            self._model(
                input_ids=torch.tensor([fresh], device=self.device),
                position_ids=torch.arange(common, len(ids), device=self.device)[None],
                use_cache=False,
                logits_to_keep=1,
                rollouts=Prefill(kv=kv, start=common),
            )
            self.num_prefill_tokens += len(fresh)
        return _Prefix(ids=ids, kv=kv)

    def _evict(self) -> None:
        used = {id(p) for p in self._block_prefix}
        size = sum(p.kv.nbytes for p in self._prefixes.values())
        for prefix in list(self._prefixes.values()):
            if size <= self._cache_bytes:
                return
            if id(prefix) not in used:
                del self._prefixes[prefix.ids]
                size -= prefix.kv.nbytes


def _check_supported(model: PreTrainedModel, config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    odd = [
        name
        for name in ("attn_logit_softcapping", "attention_chunk_size")
        if getattr(config, name, None)
    ]
    sliding = getattr(config, "sliding_window", None) and getattr(
        config, "use_sliding_window", True
    )
    if not model._supports_attention_backend or kinds != {"full_attention"} or odd or sliding:
        raise EngineError(
            f"policy.engine=hf: {type(model).__name__} uses attention that this engine does not "
            "have (sliding window, state space or soft-capped). Choose a policy.model with full "
            "attention in every layer"
        )


def _warped(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

    warpers: Any = LogitsProcessorList()
    if top_k:
        warpers.append(TopKLogitsWarper(top_k=min(top_k, logits.shape[1])))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p=top_p))
    warped: Tensor = warpers(None, logits / temperature)
    return warped


def uniform(rows: Sequence[Row]) -> NDArray[np.float64]:
    """One number in [0, 1) a rollout, a function of its seed and position alone (SplitMix64)."""
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    positions = np.array([len(row.sampled) + 1 for row in rows], dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = seeds + positions * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray((x >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


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
