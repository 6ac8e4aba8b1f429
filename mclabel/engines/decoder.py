"""Batched sampling of many rollouts with any transformers causal LM of full attention.

The decoder gives rollouts lanes and memory beside the prefixes that they share (`prefixes`), and
samples one token for them at every step (`cascade` has the attention). It is single-threaded; the
caller owns the loop (`hf`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from mclabel.core.errors import EngineError
from mclabel.engines.cascade import CHUNK, LANES, Batch, Lane, Pools, Row
from mclabel.engines.prefixes import Held, HeldRollouts, Prefix, PrefixCache

STEP_GROWTH = 512
"""Sampled tokens after which the limit on a step's lanes grows by one, if there is one."""
HELD_SHARE = 4
"""Memory of rollouts that others may go on from, in that of prefixes."""


class SharedPrefixDecoder:
    """Samples one token for live rollouts at each `step`: for all, or for those that come first.

    Rollouts of one context that are admitted together share a lane, and its computation, until they
    sample different tokens. Each draws its own token from the common distribution, so they stay
    independent; a confident model is sampled several times as fast. Rollouts join and leave between
    any two steps. The random number of a draw depends on the rollout's seed and position alone, so
    the same seed gives the same completion whatever is sampled beside it.
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
            end_ids: tokens that end a completion.
            temperature: >= 0; 0 is greedy.
            top_p: in (0, 1].
            top_k: 0 for all tokens.
            max_live: maximum number of concurrent rollouts.
            first_step: maximum number of lanes in the first decoding step; lanes of the lowest
                `Row.rank` come first. The maximum grows by 1 per `STEP_GROWTH` sampled tokens.
                None computes all lanes in every step.
            max_context: tokens of context and rollout, at most what the model was made for.
            stop: texts that end a rollout.
            ends_with: whether the last of some ids completes one of some texts.
            prefix_cache_bytes: keys and values kept of prefixes that no live rollout uses, and as
                many of rollouts that others may go on from.

        Raises:
            EngineError: the model's attention is not plain full attention.
        """
        config = model.config.get_text_config()
        _check_supported(model, config)
        self._model, self._end_ids = model, frozenset(end_ids)
        self.device = model.device
        self._temperature, self._top_p, self._top_k = temperature, top_p, top_k
        self.max_live, self._first_step = max_live, first_step
        self.max_context: float = min(config.max_position_embeddings, max_context or inf)
        self._stop, self._ends_with = tuple(stop), ends_with
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
        self._prefixes = PrefixCache(model, self._pools, max_bytes=prefix_cache_bytes)
        self._held = HeldRollouts(self._pools, max_bytes=HELD_SHARE * prefix_cache_bytes)
        self._block_prefix: list[Prefix | None] = []
        self._lanes: list[Lane | None] = []  # by slot = block * LANES + place in it
        self._fresh: dict[tuple[tuple[int, ...], int, tuple[str, ...]], tuple[Lane, Held | None]]
        self._fresh = {}
        """Lanes that have not sampled yet, by context, budget and stop texts, and what they go on
        from."""
        self._parked: list[tuple[Lane, Prefix]] = []
        """Lanes that have parted from others and wait for a slot."""
        self.num_live = 0
        """Number of rollouts being sampled."""
        self.num_sampled_tokens = 0

    @torch.no_grad()
    def update_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the model's weights, and drop everything computed with the old weights.

        Args:
            weights: by the model's names; no rollout is live.

        Raises:
            EngineError: they are not the model's.
        """
        assert not self.num_live, "rollouts are live"
        try:
            self._model.load_state_dict(dict(weights))
        except RuntimeError as error:
            raise EngineError(f"the new weights are not those of this model: {error}") from error
        self._prefixes.clear()
        self._held.clear()

    @property
    def num_prefill_tokens(self) -> int:
        """The number of prefix tokens that were computed."""
        return self._prefixes.num_computed_tokens

    @property
    def lanes(self) -> list[Lane]:
        """Lanes that a step computes, by slot."""
        return [lane for lane in self._lanes if lane is not None]

    @property
    def _step_width(self) -> int:
        """Maximum number of lanes that a step computes."""
        if self._first_step is None:
            return self.max_live
        return self._first_step + self.num_sampled_tokens // STEP_GROWTH

    @torch.inference_mode()
    def admit(self, row: Row, waiting: Iterable[tuple[int, ...]] = ()) -> bool:
        """Admit a rollout. Return False if there is no room for it now.

        Args:
            row: its context leaves room for at least one token.
            waiting: contexts of rollouts that will come soon. If one of them begins with
                this row's context, the longest is computed now for all of them.
        """
        if self.num_live >= self.max_live:
            return False
        # A lane that no step computes costs time, too: attention goes over all blocks.
        is_full = self.num_live >= self._step_width
        if is_full and all(lane.rows[0].rank < row.rank for lane in self.lanes):
            return False
        key = row.context, row.max_tokens, row.stop
        if (entry := self._fresh.get(key)) is None:
            lane, held = Lane(rows=[]), self._held.get(row.context)
            if held is not None:
                prefix = held.prefix
            else:
                prefix = self._prefixes.get(row.context[:-1], waiting, used=self._block_prefix)
            if not self._place(lane, prefix):
                return False
            if held is not None:
                lane.chunks = [self._take_chunk() for _ in range(held.num_chunks)]
                self._pools.chunks_in(lane.chunks, held.content)
            entry = self._fresh[key] = lane, held
        lane, held = entry
        if held is not None:
            held.give(row)
        lane.rows.append(row)
        self.num_live += 1
        return True

    @torch.inference_mode()
    def step(self) -> list[Row]:
        """Sample one token for live rollouts. Return the rollouts that ended, which are removed."""
        self._parked = [(lane, on) for lane, on in self._parked if not self._place(lane, on)]
        lanes = self.lanes
        if len(lanes) > self._step_width:
            lanes = heapq.nsmallest(self._step_width, lanes, key=lambda lane: lane.rows[0].rank)
        stepped = set(lanes)
        self._fresh = {key: new for key, new in self._fresh.items() if new[0] not in stepped}
        if not lanes:
            return []
        logits = self._forward(lanes)
        _read_wanted(lanes, logits)
        tokens = draw(
            logits,
            [lane.rows for lane in lanes],
            temperature=self._temperature,
            top_p=self._top_p,
            top_k=self._top_k,
        )
        ended: list[Row] = []
        parting: list[tuple[Lane, list[Row]]] = []
        for lane, chosen in zip(lanes, tokens, strict=True):
            self.num_sampled_tokens += len(chosen)
            going_on: dict[int, list[Row]] = {}
            num_before = len(ended)
            for row, token in zip(lane.rows, chosen, strict=True):
                row.sampled.append(token)
                if token in self._end_ids or len(row.sampled) >= self._budget(row):
                    ended.append(row)
                else:
                    going_on.setdefault(token, []).append(row)
            for token, rows in list(going_on.items()):
                if self.ended_by_text(rows[0]) or self.is_at_stop(rows[0]):
                    ended += going_on.pop(token)
            # The caller of a rollout that ended at its own stop text is likely to go on from it.
            for row in ended[num_before:]:
                if row.stop and not self.ended_by_token(row):
                    self._held.put(row, self._prefix_of(lane), lane.chunks)
                    break
            if not going_on:
                self._release(lane)
                continue
            lane.rows, *others = going_on.values()
            parting += [(lane, rows) for rows in others]
        self._part(parting)
        self.num_live -= len(ended)
        return ended

    def _part(self, parting: Sequence[tuple[Lane, list[Row]]]) -> None:
        """Move rollouts whose token differs from their lane's to lanes of their own."""
        copies: list[tuple[int, int]] = []
        for lane, rows in parting:
            new = Lane(rows=rows, chunks=[self._take_chunk() for _ in lane.chunks])
            copies += zip(lane.chunks, new.chunks, strict=True)
            prefix = self._prefix_of(lane)
            if not self._place(new, prefix):
                self._parked.append((new, prefix))
        if copies:
            self._pools.copy_chunks(*zip(*copies, strict=True))

    def ended_by_token(self, row: Row) -> bool:
        """Return whether a rollout ended by an end token rather than by its budget."""
        return bool(row.sampled) and row.sampled[-1] in self._end_ids

    def ended_by_text(self, row: Row) -> bool:
        """Return whether a rollout's last token completed a text that ends all rollouts."""
        return bool(self._stop and row.sampled) and self._ends_with(row.sampled, self._stop)

    def is_at_stop(self, row: Row) -> bool:
        """Return whether a rollout's last token completed a text that ends this rollout."""
        return bool(row.stop and row.fresh) and self._ends_with(row.sampled, row.stop)

    def _budget(self, row: Row) -> float:
        return min(row.max_tokens + row.num_given, self.max_context - len(row.context))

    def _prefix_of(self, lane: Lane) -> Prefix:
        prefix = self._block_prefix[lane.slot // LANES]
        assert prefix is not None
        return prefix

    def logits(self) -> Tensor:
        """Return the next-token logits, [lanes, vocabulary]."""
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

    # Blocks

    def _place(self, lane: Lane, prefix: Prefix) -> bool:
        """Give a lane a slot beside its prefix; False if all are taken."""
        slot = self._free_slot(prefix)
        if slot is None:
            return False
        lane.slot, self._lanes[slot] = slot, lane
        return True

    def _free_slot(self, prefix: Prefix) -> int | None:
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


def _read_wanted(lanes: Sequence[Lane], logits: Tensor) -> None:
    """Record the log-probabilities of the first tokens for the rollouts that request them."""
    for lane, of_lane in zip(lanes, logits, strict=True):
        for row in lane.rows:
            if row.wanted and row.logprobs is None:
                chosen = of_lane.double().log_softmax(-1)[list(row.wanted)]
                row.logprobs = tuple(chosen.tolist())


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


def draw(
    logits: Tensor,
    lanes: Sequence[Sequence[Row]],
    *,
    temperature: float,
    top_p: float,
    top_k: int,
) -> list[list[int]]:
    """Draw a token for every rollout of every lane.

    Args:
        logits: [lanes, vocabulary].
        lanes: rollouts of each, at least one.
        temperature: >= 0; 0 is greedy.
        top_p: in (0, 1].
        top_k: 0 for all tokens.

    Raises:
        EngineError: a logit is no number, and so no token has a chance.
    """
    if temperature == 0:
        highest, best = logits.max(-1)
        _check_numbers(highest)
        return [[token] * len(rows) for rows, token in zip(lanes, best.tolist(), strict=True)]
    probabilities = torch.softmax(_warped(logits, temperature, top_k, top_p), -1)
    cumulative = probabilities.double().cumsum(-1)
    _check_numbers(cumulative[:, -1])
    counts = np.array([len(rows) for rows in lanes])
    there = np.arange(counts.max()) < counts[:, None]
    draws = np.zeros(there.shape)
    draws[there] = uniform([row for rows in lanes for row in rows])
    places = torch.from_numpy(draws).to(logits.device) * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, places, right=True).clamp(max=logits.shape[1] - 1)
    drawn = zip(tokens.tolist(), counts.tolist(), strict=True)
    return [chosen[:count] for chosen, count in drawn]


def _check_numbers(of_lanes: Tensor) -> None:
    """Refuse what NaN among a lane's logits amounts to: every sum and every maximum is NaN."""
    if of_lanes.isnan().any():
        raise EngineError(
            "the model's logits are NaN, because it overflows on this text. Set "
            "policy.engine.dtype=bfloat16 or float32"
        )


def _warped(logits: Tensor, temperature: float, top_k: int, top_p: float) -> Tensor:
    from transformers import LogitsProcessorList, TopKLogitsWarper, TopPLogitsWarper

    warpers: Any = LogitsProcessorList()
    if top_k:
        warpers.append(TopKLogitsWarper(top_k=min(top_k, logits.shape[1])))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p=top_p))
    return warpers(None, logits / temperature)  # type: ignore[no-any-return]


def uniform(rows: Sequence[Row]) -> NDArray[np.float64]:
    """Draw a number in [0, 1) per rollout, from its seed and position alone (SplitMix64)."""
    seeds = np.array([row.seed for row in rows], dtype=np.uint64)
    positions = np.array([len(row.sampled) - row.num_given + 1 for row in rows], dtype=np.uint64)
    with np.errstate(over="ignore"):
        x = seeds + positions * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return np.asarray((x >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
