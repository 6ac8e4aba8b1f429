"""Batched decoding of many rollouts that share prefixes, for any transformers causal LM.

The rollouts of a solution all begin with slices of one token sequence. Its keys and values
are computed once, kept in a *block*, and read by all rollouts in the block's lanes as one
matrix product; each rollout stores keys and values of its own tokens only. This is cascade
attention (arXiv 2501.01005) with one level, reached through transformers' attention
interface: the model's own layers run unchanged on a flat batch of one token a rollout.

A rollout's own keys and values lie in small chunks (paged attention, arXiv 2309.06180), so a
long rollout does not make the others pay for its length. Rollouts join and leave between any
two steps. Single-threaded; the caller owns the loop.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import repeat_kv

from mclabel.errors import EngineError

ATTENTION = "mclabel_shared_prefix"
LANES = 8
"""Rollouts a block holds."""
CHUNK = 16
"""Tokens of a rollout's own whose keys and values lie together."""


@dataclass(eq=False)
class Row:
    """One rollout being sampled."""

    context: tuple[int, ...]
    """Prompt and prefix ids; the last one is the first decoder input."""
    max_tokens: int
    seed: int
    tag: Any = None
    """The caller's own."""
    sampled: list[int] = field(default_factory=list)
    slot: int = -1
    chunks: list[int] = field(default_factory=list)

    @property
    def num_shared(self) -> int:
        """Tokens whose keys and values lie in the block."""
        return len(self.context) - 1


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
        prefix_cache_bytes: int = 256 * 2**20,
    ) -> None:
        """Args:
        model: decoder with full attention in every layer, loaded with `ATTENTION`.
        end_ids: tokens that end a completion.
        temperature: >= 0; 0 is greedy.
        top_p: in (0, 1].
        top_k: 0 for all tokens.
        max_live: rollouts at a time.
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
        self.max_context = int(config.max_position_embeddings)
        self._layers = config.num_hidden_layers
        self._kv_heads = config.num_key_value_heads
        self._repeat = config.num_attention_heads // self._kv_heads
        self._head = getattr(config, "head_dim", None) or (
            config.hidden_size // config.num_attention_heads
        )
        # Twice the lanes that max_live needs: blocks are seldom full.
        self._max_blocks = max(1, 2 * -(-max_live // LANES))
        self._prefixes: OrderedDict[tuple[int, ...], _Prefix] = OrderedDict()
        self._block_prefix: list[_Prefix | None] = []
        self._rows: list[Row | None] = []  # by slot = block * LANES + lane
        self._block_kv = self._empty(0, 64)
        # Tokens last: on a CPU the products with a single query are five times as fast.
        self._chunk_kv = self._empty(0, CHUNK).transpose(-1, -2).contiguous()
        self._free_chunks: list[int] = []  # a heap: low numbers first keeps the rest dense
        self.num_prefill_tokens = 0
        self.num_sampled_tokens = 0

    @property
    def num_live(self) -> int:
        return sum(row is not None for row in self._rows)

    @torch.inference_mode()
    def admit(self, row: Row, waiting: Iterable[tuple[int, ...]] = ()) -> bool:
        """Give a rollout a lane; False when there is none for it now.

        Args:
            row: its context leaves room for at least one token.
            waiting: contexts of rollouts that will come soon. If one of them begins with
                this row's context, the longest is computed now for all of them.
        """
        if self.num_live >= self.max_live:
            return False
        prefix = self._prefix_of(row.context[:-1], waiting)
        slot = self._free_slot(prefix)
        if slot is None:
            return False
        row.slot, self._rows[slot] = slot, row
        return True

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Sample one token for every live rollout; returns those that ended, now gone."""
        rows = [row for row in self._rows if row is not None]
        if not rows:
            return []
        logits = self._forward(rows)
        tokens = self._sample(logits, rows)
        self.num_sampled_tokens += len(rows)
        ended = []
        for row, token in zip(rows, tokens, strict=True):
            row.sampled.append(token)
            if token in self._end_ids or len(row.sampled) >= self._budget(row):
                self._release(row)
                ended.append(row)
        return ended

    def ended_by_token(self, row: Row) -> bool:
        """Whether a rollout that ended did so by an end token rather than its budget."""
        return bool(row.sampled) and row.sampled[-1] in self._end_ids

    def _budget(self, row: Row) -> int:
        return min(row.max_tokens, self.max_context - len(row.context))

    def logits(self, rows: Sequence[Row]) -> Tensor:
        """Next-token logits [rows, vocabulary] of live rollouts (all of them, by slot)."""
        with torch.inference_mode():
            return self._forward(rows)

    # The forward pass

    def _forward(self, rows: Sequence[Row]) -> Tensor:
        for row in rows:
            if len(row.sampled) >= len(row.chunks) * CHUNK:
                row.chunks.append(self._new_chunk())
        inputs = [row.sampled[-1] if row.sampled else row.context[-1] for row in rows]
        batch = _Batch(self, rows)
        output = self._model(
            input_ids=torch.tensor([inputs], device=self.device),
            position_ids=batch.positions[None],
            use_cache=False,
            rollouts=batch,
        )
        logits: Tensor = output.logits[0].float()
        return logits

    def _sample(self, logits: Tensor, rows: Sequence[Row]) -> list[int]:
        if self._temperature == 0:
            return [int(t) for t in logits.argmax(-1)]
        probabilities = torch.softmax(
            _warped(logits, self._temperature, self._top_k, self._top_p), -1
        )
        cumulative = probabilities.double().cumsum(-1)
        draws = torch.from_numpy(uniform(rows)).to(self.device) * cumulative[:, -1]
        tokens = torch.searchsorted(cumulative, draws[:, None], right=True)[:, 0]
        return [int(t) for t in tokens.clamp(max=logits.shape[1] - 1)]

    # Blocks and prefixes

    def _free_slot(self, prefix: _Prefix) -> int | None:
        for block, held in enumerate(self._block_prefix):
            if held is prefix:
                for slot in range(block * LANES, (block + 1) * LANES):
                    if self._rows[slot] is None:
                        return slot
        if None in self._block_prefix:
            block = self._block_prefix.index(None)
        elif len(self._block_prefix) < self._max_blocks:
            block = len(self._block_prefix)
            self._block_prefix.append(None)
            self._rows += [None] * LANES
            if block >= self._block_kv.shape[2]:
                self._add_blocks()
        else:
            return None
        self._block_kv = _grown(self._block_kv, prefix.kv.shape[3])
        self._block_kv[:, :, block, :, : prefix.kv.shape[3]] = prefix.kv
        self._block_prefix[block] = prefix
        return block * LANES

    def _add_blocks(self) -> None:
        more = min(self._max_blocks, 2 * self._block_kv.shape[2] + 8) - self._block_kv.shape[2]
        extra = self._empty(more, self._block_kv.shape[4])
        self._block_kv = torch.cat([self._block_kv, extra], 2)

    def _new_chunk(self) -> int:
        if not self._free_chunks:
            held = self._chunk_kv.shape[2]
            extra = self._empty(held + 2 * self.max_live, CHUNK).transpose(-1, -2)
            self._chunk_kv = torch.cat([self._chunk_kv, extra], 2)
            self._free_chunks = list(range(held, self._chunk_kv.shape[2]))
        return heapq.heappop(self._free_chunks)

    def _release(self, row: Row) -> None:
        self._rows[row.slot] = None
        for chunk in row.chunks:
            heapq.heappush(self._free_chunks, chunk)
        block = row.slot // LANES
        if all(r is None for r in self._rows[block * LANES : (block + 1) * LANES]):
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
        kv = self._empty(1, len(ids))[:, :, 0]
        if start is not None:
            kv[:, :, :, :common] = start.kv[:, :, :, :common]
        if common < len(ids):
            fresh = ids[common:]
            self._model(
                input_ids=torch.tensor([fresh], device=self.device),
                position_ids=torch.arange(common, len(ids), device=self.device)[None],
                use_cache=False,
                logits_to_keep=1,
                rollouts=_Prefill(kv=kv, start=common),
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

    def _empty(self, num: int, tokens: int) -> Tensor:
        shape = (self._layers, 2, num, self._kv_heads, tokens, self._head)
        return torch.zeros(shape, dtype=self._model.dtype, device=self.device)


@dataclass(eq=False)
class _Prefill:
    """Attention of one sequence's new tokens; stores their keys and values in `kv`."""

    kv: Tensor
    start: int

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        self.kv[layer, 0, :, self.start :] = k[0]
        self.kv[layer, 1, :, self.start :] = v[0]
        repeat = q.shape[1] // k.shape[1]
        keys, values = (repeat_kv(self.kv[layer, i][None], repeat) for i in (0, 1))
        rows = torch.arange(q.shape[2], device=q.device)[:, None] + self.start
        mask = torch.arange(keys.shape[2], device=q.device)[None] <= rows
        out = torch.nn.functional.scaled_dot_product_attention(
            q, keys, values, attn_mask=mask, scale=scaling
        )
        return out.transpose(1, 2)


class _Batch:
    """Attention of one new token for each live rollout, over its block and its own tokens.

    Shapes: N rollouts, S slots (blocks times lanes), C chunks in use or between such ones,
    P tokens in the longest block, W chunks of the longest rollout.
    """

    def __init__(self, decoder: SharedPrefixDecoder, rows: Sequence[Row]) -> None:
        self._decoder = decoder
        device = decoder.device
        own = torch.tensor([len(row.sampled) for row in rows], device=device)
        shared = torch.tensor([row.num_shared for row in rows], device=device)
        self.positions = shared + own
        self._slots = torch.tensor([row.slot for row in rows], device=device)
        self._num_blocks = 1 + max(row.slot for row in rows) // LANES
        self._num_shared = max(row.num_shared for row in rows)
        self._width = max(len(row.chunks) for row in rows)
        self._last_chunk = torch.tensor([row.chunks[-1] for row in rows], device=device)
        self._offset = own % CHUNK
        # Every chunk's rollout and place; a free chunk belongs to rollout N, which is dropped.
        count = 1 + max(chunk for row in rows for chunk in row.chunks)
        owner, place = np.full(count, len(rows)), np.zeros(count, dtype=np.int64)
        for i, row in enumerate(rows):
            owner[row.chunks] = i
            place[row.chunks] = np.arange(len(row.chunks))
        self._owner = torch.from_numpy(owner).to(device)
        self._cell = torch.from_numpy(owner * self._width + place).to(device)
        seen = torch.cat(
            [
                torch.arange(self._num_shared, device=device)[None] < shared[:, None],
                torch.arange(self._width * CHUNK, device=device)[None] <= own[:, None],
            ],
            dim=1,
        )
        bias = torch.zeros(seen.shape, dtype=decoder._block_kv.dtype, device=device)
        self._bias = bias.masked_fill_(~seen, -torch.inf)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """[1, heads, N, size] queries, keys and values to [1, N, heads, size]."""
        d, n = self._decoder, q.shape[2]
        heads, repeat, size = d._kv_heads, d._repeat, d._head
        chunk_k, chunk_v = d._chunk_kv[layer, 0], d._chunk_kv[layer, 1]
        chunk_k[self._last_chunk, :, :, self._offset] = k[0].transpose(0, 1)
        chunk_v[self._last_chunk, :, :, self._offset] = v[0].transpose(0, 1)
        count = len(self._owner)
        query = (q[0] * scaling).transpose(0, 1).reshape(n, heads, repeat, size)
        weights = torch.softmax(
            torch.cat(
                [self._block_scores(query, layer), self._own_scores(query, chunk_k[:count])], -1
            )
            + self._bias[:, None, None],
            -1,
        )
        out = self._from_blocks(weights[..., : self._num_shared], layer)
        own = weights[..., self._num_shared :].unflatten(-1, (self._width, CHUNK))
        own = own.permute(0, 3, 1, 2, 4).reshape(n * self._width, heads, repeat, CHUNK)
        own = torch.cat([own, own.new_zeros(self._width, heads, repeat, CHUNK)])[self._cell]
        part = own @ chunk_v[:count].transpose(-1, -2)  # [C, heads, repeat, size]
        out = torch.cat([out, out.new_zeros(1, heads, repeat, size)])
        out.index_add_(0, self._owner, part)
        return out[:n].reshape(1, n, heads * repeat, size)

    def _own_scores(self, query: Tensor, chunk_k: Tensor) -> Tensor:
        """[N, heads, repeat, W * CHUNK]"""
        n, heads, repeat, _ = query.shape
        query = torch.cat([query, torch.zeros_like(query[:1])])
        scores = query[self._owner] @ chunk_k  # [C, heads, repeat, CHUNK]
        table = scores.new_zeros((n + 1) * self._width, heads, repeat, CHUNK)
        table.index_copy_(0, self._cell, scores)
        table = table.view(n + 1, self._width, heads, repeat, CHUNK)[:n]
        return table.permute(0, 2, 3, 1, 4).flatten(3)

    def _block_scores(self, query: Tensor, layer: int) -> Tensor:
        """[N, heads, repeat, P]"""
        _, heads, repeat, size = query.shape
        keys = self._decoder._block_kv[layer, 0, : self._num_blocks, :, : self._num_shared]
        grid = query.new_zeros(self._num_blocks * LANES, heads, repeat, size)
        grid[self._slots] = query
        scores = self._by_block(grid) @ keys.transpose(-1, -2)
        return self._by_slot(scores, repeat)[self._slots]

    def _from_blocks(self, weights: Tensor, layer: int) -> Tensor:
        """[N, heads, repeat, size]"""
        _, heads, repeat, _ = weights.shape
        values = self._decoder._block_kv[layer, 1, : self._num_blocks, :, : self._num_shared]
        grid = weights.new_zeros(self._num_blocks * LANES, heads, repeat, self._num_shared)
        grid[self._slots] = weights
        return self._by_slot(self._by_block(grid) @ values, repeat)[self._slots]

    @staticmethod
    def _by_block(grid: Tensor) -> Tensor:
        """[S, heads, repeat, x] to [blocks, heads, LANES * repeat, x]."""
        _, heads, repeat, size = grid.shape
        blocks = grid.view(-1, LANES, heads, repeat, size).transpose(1, 2)
        return blocks.reshape(-1, heads, LANES * repeat, size)

    @staticmethod
    def _by_slot(blocks: Tensor, repeat: int) -> Tensor:
        """The inverse of `_by_block`."""
        _, heads, _, size = blocks.shape
        grid = blocks.view(-1, heads, LANES, repeat, size).transpose(1, 2)
        return grid.reshape(-1, heads, repeat, size)


def _attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    rollouts: _Batch | _Prefill | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Transformers' attention interface: [1, heads, tokens, size] in, tokens first out."""
    if rollouts is None:
        raise RuntimeError(f"attention {ATTENTION!r} serves SharedPrefixDecoder only")
    return rollouts.attend(module.layer_idx, query, key, value, scaling), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION, _attention)


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
            "have (sliding window, state space or soft-capped). Use policy.engine=vllm"
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


def _grown(kv: Tensor, tokens: int) -> Tensor:
    """`kv` with room for at least `tokens` tokens (dimension 4)."""
    held = kv.shape[4]
    if held >= tokens:
        return kv
    larger = kv.new_zeros(*kv.shape[:4], max(tokens, 2 * held), kv.shape[5])
    larger[:, :, :, :, :held] = kv
    return larger


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
