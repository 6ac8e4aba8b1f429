"""Computes the attention of many rollouts that share prefixes, in transformers' attention
interface.

A *lane* is the computation of one token sequence, for all rollouts that have sampled the same
tokens. The keys and values of a shared prefix are stored once, in a *block*. All lanes of the block
read them in one matrix product (cascade attention with one level, arXiv 2501.01005). The keys and
values of a lane's further tokens are stored in small *chunks* (paged attention, arXiv 2309.06180).
The model's layers pass their queries, with a `DecodeBatch` or a `Prefill`, on to
`_compute_attention`.
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
"""Name of this attention in transformers; a model is loaded with `attn_implementation` set to it.
"""
LANES_PER_BLOCK = 8
"""Maximum number of lanes that share a block."""
CHUNK_TOKENS = 16
"""Number of tokens per chunk."""


@dataclass(eq=False)
class LiveRollout:
    """One rollout that is being sampled."""

    context: tuple[int, ...]
    """Token ids of prompt and prefix; the last id is the first decoder input. If this rollout
    continues an ended rollout, the decoder moves the tokens that the ended one had sampled to
    `sampled`."""
    max_tokens: int
    """Maximum number of new tokens."""
    seed: int
    stop: tuple[str, ...] = ()
    """Texts that end this rollout, in addition to the texts that end all rollouts."""
    caller_data: Any = None
    """Value that the caller attaches to the rollout; the decoder does not read it."""
    priority_and_number: tuple[int, int] = (0, 0)
    """Priority and number of the request; tuples are compared in this order. Rollouts with
    lower tuples are sampled first if not all rollouts can be sampled at once."""
    sampled: list[int] = field(default_factory=list)
    """Token ids after `context`: `num_given_ids` ids of the prefix, then the newly sampled ids."""
    scored_ids: tuple[int, ...] = ()
    """Token ids whose log-probabilities as the first new token are requested."""
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of `scored_ids`, in nats; None until the first new token is sampled."""
    num_given_ids: int = 0
    """Number of leading ids in `sampled` that belong to the prefix and were not sampled for this
    rollout."""

    @property
    def new_ids(self) -> list[int]:
        """Token ids that were sampled for this rollout, without the given prefix."""
        return self.sampled[self.num_given_ids :]


@dataclass(eq=False)
class Lane:
    """Rollouts that have the same context and sampled the same tokens so far.

    They are computed as one sequence. Its keys and values are in a block, which other lanes share,
    and in chunks of its own.
    """

    rows: list[LiveRollout]
    slot: int = -1
    """0-based slot of the lane: block number times `LANES_PER_BLOCK`, plus the lane's index in the
    block. -1 means that the lane has no slot yet."""
    chunks: list[int] = field(default_factory=list)
    """Numbers of the chunks that hold the lane's own keys and values, in token order."""

    @property
    def num_shared_tokens(self) -> int:
        """Number of tokens of the context whose keys and values are stored in the block."""
        return len(self.rows[0].context) - 1

    @property
    def num_own_tokens(self) -> int:
        """Number of tokens after the context. Their keys and values are stored in chunks."""
        return len(self.rows[0].sampled)

    @property
    def last(self) -> int:
        """Id of the last token, which is the next decoder input."""
        row = self.rows[0]
        return row.sampled[-1] if row.sampled else row.context[-1]


class KeyValuePools:
    """Growing memory for the keys and values of blocks and chunks, for all layers.

    The axis "kv heads" has one entry per key-value head.
    """

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
        self.blocks = self.make_zeros(0, 64)
        """Keys (index 0) and values (1), [layers, 2, blocks, kv heads, tokens, head size]."""
        # Tokens last: on a CPU the products with a single query are five times as fast.
        self.chunks = self.make_zeros(0, CHUNK_TOKENS).transpose(-1, -2).contiguous()
        """Keys (index 0) and values (1), [layers, 2, chunks, kv heads, head size, CHUNK_TOKENS]."""
        # A heap of free chunks: taking the lowest number first keeps the used chunks dense.
        self._free: list[int] = []

    def make_zeros(self, num_parts: int, num_tokens: int) -> Tensor:
        """Return zeros of shape [layers, 2, num_parts, kv heads, num_tokens, head size]."""
        shape = (self.layers, 2, num_parts, self.kv_heads, num_tokens, self.head_size)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def fill_block(self, block: int, kv: Tensor) -> None:
        """Copy the keys and values of a prefix into a block.

        Args:
            block: 0-based number of the block.
            kv: keys and values, [layers, 2, kv heads, tokens, head size].
        """
        tokens = kv.shape[3]
        held, room = self.blocks.shape[2], self.blocks.shape[4]
        if block >= held or tokens > room:
            more = max(held, 2 * block + 8) if block >= held else held
            larger = self.make_zeros(more, max(tokens, 2 * room) if tokens > room else room)
            larger[:, :, :held, :, :room] = self.blocks
            self.blocks = larger
        self.blocks[:, :, block, :, :tokens] = kv

    def allocate_chunk(self) -> int:
        """Return the number of a free chunk.

        If no chunk is free, the pool doubles, or grows by 256 chunks if that is more.
        """
        if not self._free:
            held = self.chunks.shape[2]
            extra = self.make_zeros(max(held, 256), CHUNK_TOKENS).transpose(-1, -2)
            self.chunks = torch.cat([self.chunks, extra], 2)
            self._free = list(range(held, self.chunks.shape[2]))
        return heapq.heappop(self._free)

    def free_chunks(self, chunks: Sequence[int]) -> None:
        """Mark chunks as free."""
        for chunk in chunks:
            heapq.heappush(self._free, chunk)


@dataclass(eq=False)
class Prefill:
    """Attention of the new tokens of one sequence, whose keys and values it stores in `kv`."""

    kv: Tensor
    """Keys and values of the sequence, [layers, 2, kv heads, tokens, head size]."""
    start: int
    """0-based position of the first new token."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """Return the attention output of the new tokens, each over all tokens up to itself.

        The arguments are those of `DecodeBatch.attend`, with the new tokens in place of lanes.
        """
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


class DecodeBatch:
    """Attention of one new token per lane, over the tokens in the lane's block and in its chunks.

    Shapes: N lanes, S slots (number of blocks times `LANES_PER_BLOCK`), C chunks (the highest used
    chunk number plus 1), P tokens of the longest block, W chunks of the longest lane. "Heads" are
    key-value heads, "repeat" is the number of query heads per key-value head, and the last axis x
    may have any size. Tensors are rearranged from slots to blocks so that one matrix product serves
    all lanes of a block.
    """

    def __init__(self, pools: KeyValuePools, lanes: Sequence[Lane]) -> None:
        self._pools = pools
        device = pools.device
        own = torch.tensor([lane.num_own_tokens for lane in lanes], device=device)
        shared = torch.tensor([lane.num_shared_tokens for lane in lanes], device=device)
        self.positions = shared + own
        self._slots = torch.tensor([lane.slot for lane in lanes], device=device)
        self._num_blocks = 1 + max(lane.slot for lane in lanes) // LANES_PER_BLOCK
        self._num_shared = max(lane.num_shared_tokens for lane in lanes)
        self._width = max(len(lane.chunks) for lane in lanes)
        self._last_chunk = torch.tensor([lane.chunks[-1] for lane in lanes], device=device)
        self._offset = own % CHUNK_TOKENS
        # Lane of every chunk, and place of the chunk in that lane. A free chunk belongs to lane N,
        # whose results are dropped.
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
                torch.arange(self._width * CHUNK_TOKENS, device=device)[None] <= own[:, None],
            ],
            dim=1,
        )
        bias = torch.zeros(seen.shape, dtype=pools.dtype, device=device)
        self._bias = bias.masked_fill_(~seen, -torch.inf)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scaling: float) -> Tensor:
        """Return the attention output of the new tokens, [1, N, query heads, size].

        Args:
            layer: 0-based number of the model's layer.
            q: queries, [1, query heads, N, size].
            k: keys, [1, kv heads, N, size].
            v: values, [1, kv heads, N, size].
            scaling: factor of the attention scores.
        """
        pools, n = self._pools, q.shape[2]
        heads, repeat, size = pools.kv_heads, pools.queries_per_head, pools.head_size
        chunk_k, chunk_v = pools.chunks[layer, 0], pools.chunks[layer, 1]
        chunk_k[self._last_chunk, :, :, self._offset] = k[0].transpose(0, 1)
        chunk_v[self._last_chunk, :, :, self._offset] = v[0].transpose(0, 1)
        count = len(self._owner)
        query = (q[0] * scaling).transpose(0, 1).reshape(n, heads, repeat, size)
        weights = torch.softmax(
            torch.cat(
                [
                    self._score_shared_blocks(query, layer),
                    self._score_own_chunks(query, chunk_k[:count]),
                ],
                -1,
            )
            + self._bias[:, None, None],
            -1,
        )
        out = self._sum_block_values(weights[..., : self._num_shared], layer)
        own = weights[..., self._num_shared :].unflatten(-1, (self._width, CHUNK_TOKENS))
        own = own.permute(0, 3, 1, 2, 4).reshape(n * self._width, heads, repeat, CHUNK_TOKENS)
        own = torch.cat([own, own.new_zeros(self._width, heads, repeat, CHUNK_TOKENS)])[self._cell]
        part = own @ chunk_v[:count].transpose(-1, -2)  # [C, heads, repeat, size]
        out = torch.cat([out, out.new_zeros(1, heads, repeat, size)])
        out.index_add_(0, self._owner, part)
        return out[:n].reshape(1, n, heads * repeat, size)

    def _score_own_chunks(self, query: Tensor, chunk_k: Tensor) -> Tensor:
        """Return scores of tokens in each lane's chunks, [N, heads, repeat, W * CHUNK_TOKENS]."""
        n, heads, repeat, _ = query.shape
        query = torch.cat([query, torch.zeros_like(query[:1])])
        scores = query[self._owner] @ chunk_k  # [C, heads, repeat, CHUNK_TOKENS]
        table = scores.new_zeros((n + 1) * self._width, heads, repeat, CHUNK_TOKENS)
        table.index_copy_(0, self._cell, scores)
        table = table.view(n + 1, self._width, heads, repeat, CHUNK_TOKENS)[:n]
        return table.permute(0, 2, 3, 1, 4).flatten(3)

    def _score_shared_blocks(self, query: Tensor, layer: int) -> Tensor:
        """Return the scores of the tokens in each lane's block, [N, heads, repeat, P]."""
        _, heads, repeat, size = query.shape
        keys = self._pools.blocks[layer, 0, : self._num_blocks, :, : self._num_shared]
        grid = query.new_zeros(self._num_blocks * LANES_PER_BLOCK, heads, repeat, size)
        grid[self._slots] = query
        scores = self._group_by_block(grid) @ keys.transpose(-1, -2)
        return self._group_by_slot(scores, repeat)[self._slots]

    def _sum_block_values(self, weights: Tensor, layer: int) -> Tensor:
        """Return the weighted sum of the values in each lane's block, [N, heads, repeat, size]."""
        _, heads, repeat, _ = weights.shape
        values = self._pools.blocks[layer, 1, : self._num_blocks, :, : self._num_shared]
        grid = weights.new_zeros(
            self._num_blocks * LANES_PER_BLOCK, heads, repeat, self._num_shared
        )
        grid[self._slots] = weights
        return self._group_by_slot(self._group_by_block(grid) @ values, repeat)[self._slots]

    @staticmethod
    def _group_by_block(grid: Tensor) -> Tensor:
        """Rearrange a tensor from slots to blocks.

        [S, heads, repeat, x] becomes [blocks, heads, LANES_PER_BLOCK * repeat, x]; the class
        explains the axes.
        """
        _, heads, repeat, size = grid.shape
        blocks = grid.view(-1, LANES_PER_BLOCK, heads, repeat, size).transpose(1, 2)
        return blocks.reshape(-1, heads, LANES_PER_BLOCK * repeat, size)

    @staticmethod
    def _group_by_slot(blocks: Tensor, repeat: int) -> Tensor:
        """Rearrange a tensor from blocks back to slots, the inverse of `_group_by_block`.

        [blocks, heads, LANES_PER_BLOCK * repeat, x] becomes [S, heads, repeat, x]; the class
        explains the axes.

        Args:
            blocks: tensor in the order of blocks.
            repeat: number of query heads per key-value head.
        """
        _, heads, _, size = blocks.shape
        grid = blocks.view(-1, heads, LANES_PER_BLOCK, repeat, size).transpose(1, 2)
        return grid.reshape(-1, heads, repeat, size)


def _compute_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    rollouts: DecodeBatch | Prefill | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Compute attention as a function of transformers' attention interface.

    The query is [1, query heads, tokens, head size]; key and value have key-value heads instead.
    The output is [1, tokens, query heads, head size].
    """
    if rollouts is None:
        raise RuntimeError(f"attention {ATTENTION!r} works only inside SharedPrefixDecoder")
    return rollouts.attend(module.layer_idx, query, key, value, scaling), None  # type: ignore[arg-type]


AttentionInterface.register(ATTENTION, _compute_attention)
