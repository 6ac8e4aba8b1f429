"""Attention of many rollouts that share prefixes, through transformers' attention interface.

A shared prefix's keys and values lie once in a *block*, which all its lanes read as one matrix
product (cascade attention with one level, arXiv 2501.01005); a lane's own lie in small chunks
(paged attention, arXiv 2309.06180). The model's layers hand `Batch` or `Prefill` on to it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv

ATTENTION = "mclabel_shared_prefix"
LANES = 8
"""Number of lanes in a block."""
CHUNK = 16
"""Tokens of a lane's own whose keys and values lie together."""


@dataclass(eq=False)
class Row:
    """One rollout being sampled."""

    context: tuple[int, ...]
    """Prompt and prefix ids; the last one is the first decoder input. Of a rollout that goes on
    where another one ended, the decoder moves the ids that the other sampled to `sampled`."""
    max_tokens: int
    """Most new tokens."""
    seed: int
    stop: tuple[str, ...] = ()
    """Texts that end this rollout, beside those that end all."""
    tag: Any = None
    """The caller's own."""
    rank: tuple[int, int] = (0, 0)
    """Priority and number of the request: lower is sampled first where not all can be."""
    sampled: list[int] = field(default_factory=list)
    wanted: tuple[int, ...] = ()
    """Tokens whose log-probabilities as its first one are read."""
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of `wanted`, in nats, once its first token is sampled."""
    num_given: int = 0
    """Number of ids in `sampled` that belong to the end of its prefix and were not sampled."""

    @property
    def fresh(self) -> list[int]:
        """The tokens that it has sampled itself."""
        return self.sampled[self.num_given :]


@dataclass(eq=False)
class Lane:
    """Rollouts of one context that have sampled the same tokens so far: computed as one."""

    rows: list[Row]
    slot: int = -1
    chunks: list[int] = field(default_factory=list)

    @property
    def num_shared(self) -> int:
        """Tokens whose keys and values lie in the block."""
        return len(self.rows[0].context) - 1

    @property
    def num_own(self) -> int:
        """Tokens after those of the block."""
        return len(self.rows[0].sampled)

    @property
    def last(self) -> int:
        """The token to go on from."""
        row = self.rows[0]
        return row.sampled[-1] if row.sampled else row.context[-1]


class Pools:
    """Memory for keys and values: of blocks and of chunks, for all layers, grown on demand."""

    def __init__(
        self,
        *,
        layers: int,
        kv_heads: int,
        queries_per_head: int,
        head_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.layers, self.kv_heads, self.head_size = layers, kv_heads, head_size
        self.queries_per_head = queries_per_head
        self.dtype, self.device = dtype, device
        self.blocks = self.empty(0, 64)
        """[layers, 2, blocks, kv heads, tokens, head size]"""
        # Tokens last: on a CPU the products with a single query are five times as fast.
        self.chunks = self.empty(0, CHUNK).transpose(-1, -2).contiguous()
        """[layers, 2, chunks, kv heads, head size, CHUNK]"""
        self._free: list[int] = []  # a heap: low numbers first keeps the rest dense

    def empty(self, num: int, tokens: int) -> Tensor:
        """Zeros of shape [layers, 2, num, kv heads, tokens, head size]."""
        shape = (self.layers, 2, num, self.kv_heads, tokens, self.head_size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def fill_block(self, block: int, kv: Tensor) -> None:
        """Copy a prefix's keys and values, [layers, 2, kv heads, tokens, head size], to a block."""
        tokens = kv.shape[3]
        held, room = self.blocks.shape[2], self.blocks.shape[4]
        if block >= held or tokens > room:
            more = max(held, 2 * block + 8) if block >= held else held
            larger = self.empty(more, max(tokens, 2 * room) if tokens > room else room)
            larger[:, :, :held, :, :room] = self.blocks
            self.blocks = larger
        self.blocks[:, :, block, :, :tokens] = kv

    def take_chunk(self, at_least: int) -> int:
        """Return a free chunk; without one the pool grows by `at_least` or doubles."""
        if not self._free:
            held = self.chunks.shape[2]
            extra = self.empty(max(held, at_least), CHUNK).transpose(-1, -2)
            self.chunks = torch.cat([self.chunks, extra], 2)
            self._free = list(range(held, self.chunks.shape[2]))
        return heapq.heappop(self._free)

    def copy_chunks(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Copy keys and values, chunk by chunk."""
        self.chunks[:, :, list(target)] = self.chunks[:, :, list(source)]

    def chunks_out(self, chunks: Sequence[int]) -> Tensor:
        """Copy chunks, to be kept outside."""
        return self.chunks[:, :, list(chunks)]

    def chunks_in(self, chunks: Sequence[int], content: Tensor) -> None:
        """Fill chunks with what `chunks_out` gave."""
        self.chunks[:, :, list(chunks)] = content

    def free_chunks(self, chunks: Sequence[int]) -> None:
        """Give chunks back."""
        for chunk in chunks:
            heapq.heappush(self._free, chunk)


@dataclass(eq=False)
class Prefill:
    """Attention of one sequence's new tokens; stores their keys and values in `kv`."""

    kv: Tensor
    start: int

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """Attend to what came before and to the new tokens, causally."""
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


class Batch:
    """Attention of one new token for each lane, over its block and its own tokens.

    Shapes: N lanes, S slots (blocks times lanes), C chunks in use or between such ones,
    P tokens in the longest block, W chunks of the longest lane.
    """

    def __init__(self, pools: Pools, lanes: Sequence[Lane]) -> None:
        self._pools = pools
        device = pools.device
        own = torch.tensor([lane.num_own for lane in lanes], device=device)
        shared = torch.tensor([lane.num_shared for lane in lanes], device=device)
        self.positions = shared + own
        self._slots = torch.tensor([lane.slot for lane in lanes], device=device)
        self._num_blocks = 1 + max(lane.slot for lane in lanes) // LANES
        self._num_shared = max(lane.num_shared for lane in lanes)
        self._width = max(len(lane.chunks) for lane in lanes)
        self._last_chunk = torch.tensor([lane.chunks[-1] for lane in lanes], device=device)
        self._offset = own % CHUNK
        # Every chunk's lane and place; a free chunk belongs to lane N, which is dropped.
        count = 1 + max(chunk for lane in lanes for chunk in lane.chunks)
        owner, place = np.full(count, len(lanes)), np.zeros(count, dtype=np.int64)
        for i, lane in enumerate(lanes):
            owner[lane.chunks] = i
            place[lane.chunks] = np.arange(len(lane.chunks))
        self._owner = torch.from_numpy(owner).to(device)
        self._cell = torch.from_numpy(owner * self._width + place).to(device)
        seen = torch.cat(
            [
                torch.arange(self._num_shared, device=device)[None] < shared[:, None],
                torch.arange(self._width * CHUNK, device=device)[None] <= own[:, None],
            ],
            dim=1,
        )
        bias = torch.zeros(seen.shape, dtype=pools.dtype, device=device)
        self._bias = bias.masked_fill_(~seen, -torch.inf)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """[1, heads, N, size] queries, keys and values to [1, N, heads, size]."""
        pools, n = self._pools, q.shape[2]
        heads, repeat, size = pools.kv_heads, pools.queries_per_head, pools.head_size
        chunk_k, chunk_v = pools.chunks[layer, 0], pools.chunks[layer, 1]
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
        keys = self._pools.blocks[layer, 0, : self._num_blocks, :, : self._num_shared]
        grid = query.new_zeros(self._num_blocks * LANES, heads, repeat, size)
        grid[self._slots] = query
        scores = self._by_block(grid) @ keys.transpose(-1, -2)
        return self._by_slot(scores, repeat)[self._slots]

    def _from_blocks(self, weights: Tensor, layer: int) -> Tensor:
        """[N, heads, repeat, size]"""
        _, heads, repeat, _ = weights.shape
        values = self._pools.blocks[layer, 1, : self._num_blocks, :, : self._num_shared]
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
        """Return the inverse of `_by_block`."""
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
    rollouts: Batch | Prefill | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Transformers' attention interface: [1, heads, tokens, size] in, tokens first out."""
    if rollouts is None:
        raise RuntimeError(f"attention {ATTENTION!r} serves SharedPrefixDecoder only")
    return rollouts.attend(module.layer_idx, query, key, value, scaling), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION, _attention)
