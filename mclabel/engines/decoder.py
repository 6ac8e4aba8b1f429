"""Samples many rollouts in one batch, with any transformers causal LM that has full attention.

Rollouts share the keys and values of their common prefixes, which the module `prefixes` computes. A
*lane* is the computation of one token sequence, for all rollouts that have sampled the same tokens
so far. A step samples one token for the live rollouts, with the attention of the module `cascade`.
The decoder is single-threaded. Its caller, the engine `hf`, runs the loop of steps.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.core.errors import EngineError
from mclabel.engines.cascade import (
    CHUNK_TOKENS,
    LANES_PER_BLOCK,
    DecodeBatch,
    KeyValuePools,
    Lane,
    LiveRollout,
)
from mclabel.engines.prefixes import EndedRollout, EndedRolloutCache, Prefix, PrefixCache

WINDOW = 16
"""Number of steps without a free lane after which `LaneLimit` measures the speed of sampling."""
MIN_SPEEDUP = 1.1
"""The limit is doubled if sampling is faster than at the latest doubling by more than this factor.
"""
HELD_SHARE = 4
"""Maximum memory for ended rollouts that may be continued, as a multiple of `prefix_cache_bytes`.
"""


class LaneLimit:
    """Maximum number of lanes per step, which doubles as long as this makes sampling faster.

    With few lanes the earliest requests end first; with many lanes more rollouts share the fixed
    cost of a step. The limit depends on the speed of the machine. It decides when a rollout is
    sampled, but never which tokens.
    """

    def __init__(self, first: int) -> None:
        self.num_lanes = first
        self._best_speed = 0.0
        # Tokens and seconds of the steps since the latest measurement that had no lane free.
        self._full_steps: list[tuple[int, float]] = []

    def record_step(self, num_live: int, num_tokens: int, seconds: float) -> None:
        """Add the tokens and the time of a step, and raise the limit if it is due."""
        if num_live >= self.num_lanes:
            self._full_steps.append((num_tokens, seconds))
        if len(self._full_steps) == WINDOW:
            tokens, times = zip(*self._full_steps, strict=True)
            speed = sum(tokens) / sum(times)
            if speed > MIN_SPEEDUP * self._best_speed:
                self._best_speed, self.num_lanes = speed, 2 * self.num_lanes
            self._full_steps.clear()


class SharedPrefixDecoder:
    """Samples one token per `step` for all live rollouts, or for those with the lowest ranks.

    Rollouts with the same context share a lane until they sample different tokens, if they are
    admitted before the lane's first step. A lane is computed once for all its rollouts. Each
    rollout draws its own token from the lane's distribution, so the rollouts stay independent. If
    the model is confident, so that rollouts often draw the same token, this is several times as
    fast. Rollouts join and leave between any two steps. The random number of a draw depends only on
    the rollout's seed and position. So the same seed gives the same completion, no matter which
    other rollouts are sampled at the same time.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        end_ids: Iterable[int],
        temperature: float,
        top_p: float = 1.0,
        top_k: int = 0,
        max_live: int = 256,
        first_step: int | None = None,
        max_context: int | None = None,
        stop: Sequence[str] = (),
        ends_with: Callable[[Sequence[int], Sequence[str]], bool] = lambda ids, stop: False,
        prefix_cache_bytes: int = 256 * 2**20,
    ) -> None:
        """Prepare the model; no rollout is live yet.

        Args:
            model: decoder with full attention in every layer, loaded with `ATTENTION`.
            end_ids: ids of the tokens that end a completion.
            temperature: sampling temperature, >= 0; 0 is greedy.
            top_p: total probability of the tokens to sample from, in (0, 1].
            top_k: number of most likely tokens to sample from; 0 for all tokens.
            max_live: maximum number of concurrent rollouts.
            first_step: maximum number of lanes in the first decoding step; lanes of the lowest
                `LiveRollout.priority_and_number` come first. `LaneLimit` raises the maximum. None
                computes all lanes in every step.
            max_context: maximum number of tokens of context and new tokens together; None uses the
                model's own limit, which also applies if it is smaller.
            stop: texts that end every rollout.
            ends_with: function of token ids and stop texts that returns whether the last token
                completes one of the texts.
            prefix_cache_bytes: maximum bytes of keys and values of prefixes that no live rollout
                uses. Ended rollouts that may be continued take up to `HELD_SHARE` times as much.

        Raises:
            EngineError: the model's attention is not plain full attention.
        """
        config = model.config.get_text_config()
        _check_attention_supported(model, config)
        self._model, self._end_ids = model, frozenset(end_ids)
        self.device = model.device
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self.max_live = max_live
        self._lane_limit = LaneLimit(max_live if first_step is None else first_step)
        self.max_context: float = min(config.max_position_embeddings, max_context or inf)
        self._stop, self._ends_with = tuple(stop), ends_with
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        self._pools = KeyValuePools(
            layers=config.num_hidden_layers,
            kv_heads=kv_heads,
            queries_per_head=heads // kv_heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=model.dtype,
            device=model.device,
        )
        # Twice as many lanes as max_live needs, because blocks are seldom full.
        self._max_blocks = max(1, 2 * -(-max_live // LANES_PER_BLOCK))
        self._prefixes = PrefixCache(model, self._pools, max_bytes=prefix_cache_bytes)
        self._held = EndedRolloutCache(self._pools, max_bytes=HELD_SHARE * prefix_cache_bytes)
        self._block_prefix: list[Prefix | None] = []
        self._lanes: list[Lane | None] = []  # index: block * LANES_PER_BLOCK + place in the block
        self._fresh: dict[
            tuple[tuple[int, ...], int, tuple[str, ...]], tuple[Lane, EndedRollout | None]
        ]
        self._fresh = {}
        """Maps (context, token budget, stop texts) to a lane that has not sampled yet, and to the
        ended rollout that this lane continues (None if it continues none)."""
        self._parked: list[tuple[Lane, Prefix]] = []
        """Lanes that were split off from other lanes and wait for a slot, with their prefixes."""
        self.num_live = 0
        """Number of rollouts being sampled."""
        self.num_sampled_tokens = 0

    @property
    def num_prefill_tokens(self) -> int:
        """Number of prefix tokens that were computed."""
        return self._prefixes.num_computed_tokens

    @property
    def lanes(self) -> list[Lane]:
        """Lanes that have a slot, in the order of slots."""
        return [lane for lane in self._lanes if lane is not None]

    @torch.inference_mode()
    def admit(self, row: LiveRollout, waiting_contexts: Iterable[tuple[int, ...]] = ()) -> bool:
        """Admit a rollout to the next step. Return False if there is no room for it now.

        Args:
            row: the rollout. Its context must leave room for at least one token.
            waiting_contexts: contexts of rollouts that will be admitted soon. If some of them begin
                with this rollout's context, the longest is computed now, for all of them.
        """
        if self.num_live >= self.max_live:
            return False
        # Even a lane that no step computes costs time, because attention reads all blocks.
        is_full = self.num_live >= self._lane_limit.num_lanes
        if is_full and all(
            lane.rows[0].priority_and_number < row.priority_and_number for lane in self.lanes
        ):
            return False
        key = row.context, row.max_tokens, row.stop
        if (entry := self._fresh.get(key)) is None:
            lane, held = Lane(rows=[]), self._held.get(row.context)
            if held is not None:
                prefix = held.prefix
            else:
                prefix = self._prefixes.get(
                    row.context[:-1], waiting_contexts, live_prefixes=self._block_prefix
                )
            if not self._assign_slot_to_lane(lane, prefix):
                return False
            if held is not None:
                lane.chunks = [self._pools.allocate_chunk() for _ in range(held.content.shape[2])]
                self._pools.chunks[:, :, lane.chunks] = held.content
            entry = self._fresh[key] = lane, held
        lane, held = entry
        if held is not None:
            held.move_ids_to(row)
        lane.rows.append(row)
        self.num_live += 1
        return True

    @torch.inference_mode()
    def step(self) -> list[LiveRollout]:
        """Sample one token for the live rollouts. Remove and return those that have ended."""
        began, num_sampled_before = time.perf_counter(), self.num_sampled_tokens
        self._parked = [
            (lane, on) for lane, on in self._parked if not self._assign_slot_to_lane(lane, on)
        ]
        lanes = self.lanes
        if len(lanes) > self._lane_limit.num_lanes:
            lanes = heapq.nsmallest(
                self._lane_limit.num_lanes, lanes, key=lambda lane: lane.rows[0].priority_and_number
            )
        stepped = set(lanes)
        self._fresh = {key: new for key, new in self._fresh.items() if new[0] not in stepped}
        if not lanes:
            return []
        logits = self._compute_next_logits(lanes)
        _store_first_token_logprobs(lanes, logits)
        tokens = draw_tokens(
            logits,
            [lane.rows for lane in lanes],
            temperature=self._temperature,
            top_p=self._top_p,
            top_k=self._top_k,
        )
        ended: list[LiveRollout] = []
        leaving_rollouts: list[tuple[Lane, list[LiveRollout]]] = []
        for lane, chosen in zip(lanes, tokens, strict=True):
            self.num_sampled_tokens += len(chosen)
            going_on: dict[int, list[LiveRollout]] = {}
            num_before = len(ended)
            for row, token in zip(lane.rows, chosen, strict=True):
                row.sampled.append(token)
                if token in self._end_ids or len(row.sampled) >= min(
                    row.max_tokens + row.num_given_ids, self.max_context - len(row.context)
                ):
                    ended.append(row)
                else:
                    going_on.setdefault(token, []).append(row)
            for token, rows in list(going_on.items()):
                if self.ended_by_text(rows[0]) or self.is_at_stop(rows[0]):
                    ended += going_on.pop(token)
            # If a rollout ended at its own stop text, the caller is likely to continue it.
            for row in ended[num_before:]:
                if row.stop and not self.ended_by_token(row):
                    self._held.put(row, self._get_lane_prefix(lane), lane.chunks)
                    break
            if not going_on:
                self._release_lane(lane)
                continue
            lane.rows, *others = going_on.values()
            leaving_rollouts += [(lane, rows) for rows in others]
        self._split_lanes(leaving_rollouts)
        self._lane_limit.record_step(
            self.num_live, self.num_sampled_tokens - num_sampled_before, time.perf_counter() - began
        )
        self.num_live -= len(ended)
        return ended

    def _split_lanes(self, leaving_rollouts: Sequence[tuple[Lane, list[LiveRollout]]]) -> None:
        """Move rollouts whose last token differs from that of their lane to new lanes.

        Args:
            leaving_rollouts: pairs of an old lane and the rollouts that leave it for one new lane.
        """
        copies: list[tuple[int, int]] = []
        for lane, rows in leaving_rollouts:
            new = Lane(rows=rows, chunks=[self._pools.allocate_chunk() for _ in lane.chunks])
            copies += zip(lane.chunks, new.chunks, strict=True)
            prefix = self._get_lane_prefix(lane)
            if not self._assign_slot_to_lane(new, prefix):
                self._parked.append((new, prefix))
        if copies:
            source, target = map(list, zip(*copies, strict=True))
            self._pools.chunks[:, :, target] = self._pools.chunks[:, :, source]

    def ended_by_token(self, row: LiveRollout) -> bool:
        """Return whether a rollout ended by an end token rather than by its budget."""
        return bool(row.sampled) and row.sampled[-1] in self._end_ids

    def ended_by_text(self, row: LiveRollout) -> bool:
        """Return whether a rollout's last token completed a text that ends all rollouts."""
        return bool(self._stop and row.sampled) and self._ends_with(row.sampled, self._stop)

    def is_at_stop(self, row: LiveRollout) -> bool:
        """Return whether a rollout's last token completed one of its own stop texts."""
        return bool(row.stop and row.new_ids) and self._ends_with(row.sampled, row.stop)

    def _get_lane_prefix(self, lane: Lane) -> Prefix:
        prefix = self._block_prefix[lane.slot // LANES_PER_BLOCK]
        assert prefix is not None
        return prefix

    def logits(self) -> Tensor:
        """Return the next-token logits of all lanes that have a slot, in the order of slots.

        The shape is [lanes, vocabulary].
        """
        with torch.inference_mode():
            return self._compute_next_logits(self.lanes)

    # The forward pass

    def _compute_next_logits(self, lanes: Sequence[Lane]) -> Tensor:
        for lane in lanes:
            if lane.num_own_tokens >= len(lane.chunks) * CHUNK_TOKENS:
                lane.chunks.append(self._pools.allocate_chunk())
        batch = DecodeBatch(self._pools, lanes)
        output = self._model(
            input_ids=torch.tensor([[lane.last for lane in lanes]], device=self.device),
            position_ids=batch.positions[None],
            use_cache=False,
            rollouts=batch,
        )
        logits: Tensor = output.logits[0]
        return logits.float() if logits.dtype.itemsize < 4 else logits

    # Blocks

    def _assign_slot_to_lane(self, lane: Lane, prefix: Prefix) -> bool:
        """Give a lane a slot in a block of its prefix. Return False if no slot is free."""
        slot = self._find_free_slot(prefix)
        if slot is None:
            return False
        lane.slot, self._lanes[slot] = slot, lane
        return True

    def _find_free_slot(self, prefix: Prefix) -> int | None:
        for block, held in enumerate(self._block_prefix):
            if held is prefix:
                for slot in range(block * LANES_PER_BLOCK, (block + 1) * LANES_PER_BLOCK):
                    if self._lanes[slot] is None:
                        return slot
        if None in self._block_prefix:
            block = self._block_prefix.index(None)
        elif len(self._block_prefix) < self._max_blocks:
            block = len(self._block_prefix)
            self._block_prefix.append(None)
            self._lanes += [None] * LANES_PER_BLOCK
        else:
            return None
        self._pools.fill_block(block, prefix.kv)
        self._block_prefix[block] = prefix
        return block * LANES_PER_BLOCK

    def _release_lane(self, lane: Lane) -> None:
        self._lanes[lane.slot] = None
        self._pools.free_chunks(lane.chunks)
        block = lane.slot // LANES_PER_BLOCK
        if all(
            other is None
            for other in self._lanes[block * LANES_PER_BLOCK : (block + 1) * LANES_PER_BLOCK]
        ):
            self._block_prefix[block] = None


def _store_first_token_logprobs(lanes: Sequence[Lane], logits: Tensor) -> None:
    """Store the first-token log-probabilities in each rollout that requests them."""
    for lane, lane_logits in zip(lanes, logits, strict=True):
        for row in lane.rows:
            if row.scored_ids and row.logprobs is None:
                chosen = lane_logits.double().log_softmax(-1)[list(row.scored_ids)]
                row.logprobs = tuple(chosen.tolist())


def _check_attention_supported(model: PreTrainedModel, config: Any) -> None:
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
            f"policy.engine=hf: {type(model).__name__} uses a kind of attention that this engine "
            "does not support (sliding window, state space or soft-capped). Choose a policy.model "
            "with full attention in every layer"
        )


def draw_tokens(
    logits: Tensor,
    lanes: Sequence[Sequence[LiveRollout]],
    *,
    temperature: float,
    top_p: float,
    top_k: int,
) -> list[list[int]]:
    """Draw a token for every rollout of every lane.

    Args:
        logits: next-token logits, [lanes, vocabulary].
        lanes: the rollouts of each lane, at least one per lane.
        temperature: sampling temperature, >= 0; 0 is greedy.
        top_p: total probability of the tokens to sample from, in (0, 1].
        top_k: number of most likely tokens to sample from; 0 for all tokens.

    Returns:
        One token id for each rollout of each lane.

    Raises:
        EngineError: a logit is NaN, so the probabilities are undefined.
    """
    if temperature == 0:
        highest, best = logits.max(-1)
        _check_free_of_nan(highest)
        return [[token] * len(rows) for rows, token in zip(lanes, best.tolist(), strict=True)]
    probabilities = torch.softmax(_warp_logits(logits, temperature, top_k, top_p), -1)
    cumulative = probabilities.double().cumsum(-1)
    _check_free_of_nan(cumulative[:, -1])
    counts = np.array([len(rows) for rows in lanes])
    is_row = np.arange(counts.max()) < counts[:, None]
    draws = np.zeros(is_row.shape)
    draws[is_row] = draw_uniform_numbers([row for rows in lanes for row in rows])
    places = torch.from_numpy(draws).to(logits.device) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, places, right=True).clamp(max=logits.shape[1] - 1)
    return [chosen[:count] for chosen, count in zip(tokens.tolist(), counts.tolist(), strict=True)]


def _check_free_of_nan(lane_values: Tensor) -> None:
    """Raise an error if a lane's logits contain NaN.

    Args:
        lane_values: sum or maximum of each lane's logits, which is NaN if one of the logits is NaN.
    """
    if lane_values.isnan().any():
        raise EngineError(
            "the model's logits are NaN, because its numbers overflow on this text. Set "
            "policy.engine.dtype=bfloat16 or float32"
        )


def _warp_logits(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

    warpers: Any = LogitsProcessorList()
    if top_k:
        warpers.append(TopKLogitsWarper(top_k=min(top_k, logits.shape[1])))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p=top_p))
    return warpers(None, logits / temperature)  # type: ignore[no-any-return]


def draw_uniform_numbers(rows: Sequence[LiveRollout]) -> NDArray[np.float64]:
    """Draw one number in [0, 1) per rollout, from its seed and number of tokens (SplitMix64)."""
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    positions = np.array(
        [len(row.sampled) - row.num_given_ids + 1 for row in rows], dtype=np.uint64
    )
    with np.errstate(over="ignore"):
        x = seeds + positions * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray((x >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
