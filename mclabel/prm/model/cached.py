"""Forward passes over new tokens alone, with cached keys and values of the preceding tokens.

`mclabel.prm.scoring.incremental` scores prefixes of solutions by such passes. A prefix is extended
by *continuations*, each a sequence of new tokens. A row of a batch consists of one prefix and all
its continuations in this batch. The keys and values of the prefix are copied once. Each
continuation attends to the prefix and to its own tokens (tree attention, arXiv 2305.09781).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from mclabel.prm.examples.batch import BATCH_TOKENS, accepts_attention_masks

ROW_TOKENS = 64
"""Maximum number of new tokens in a row, because the cost of attention grows quadratically. A
single longer continuation gets a row of its own."""
MAX_PADDING = {"cpu": 64}
"""Maximum number of padding tokens in a batch, by device type. Computing this much padding costs
about as much as starting another batch."""
MAX_PADDING_ELSEWHERE = 1024
"""Maximum number of padding tokens in a batch on device types that `MAX_PADDING` does not list."""
MOVING_ROPES = ("dynamic", "longrope")
"""Types of rotary embeddings whose frequencies depend on the length of the whole text, so that
cached keys would become wrong."""
NUM_PROBED = 8
"""Number of tokens in the probe that compares hidden states with and without a cache."""
PROBED_ERROR = 1e-3
"""Maximum error of cached hidden states in the probe, as a fraction of the largest state. Types of
low precision are allowed a larger error."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrefixContinuation:
    """One continuation of a prefix: tokens to compute, with the cache of the preceding tokens."""

    token_ids: Sequence[int]
    """Ids of the tokens to compute."""
    cached_keys_and_values: Sequence[Tensor] = ()
    """Keys and values of the preceding tokens, in text order, in pieces as `CachedBody.run` returns
    them."""
    num_cached_tokens: int = 0
    """Number of tokens before the new ones."""
    prefix_key: Hashable
    """Key of the prefix. Two requests with the same prefix have equal keys."""


Row = list[PrefixContinuation]
"""Continuations of one prefix that are computed in one row of a batch."""


class CachedBody:
    """A transformer body that can compute new tokens from cached keys and values.

    Each of its layers attends to all earlier tokens.
    """

    def __init__(self, network: PreTrainedModel, shape: _CacheShape) -> None:
        """Wrap the body of a network. Use `from_network`, which checks the network first."""
        self._network, self._shape = network, shape

    @classmethod
    def from_network(cls, network: PreTrainedModel) -> Self | None:
        """Return the body of a network, or None if the cache does not support its architecture.

        All layers must have the same shape and accept any attention mask. The keys must not change
        as the text grows. The states of a few tokens must be the same with and without a cache.
        """
        rope = getattr(network.config.get_text_config(), "rope_parameters", None) or {}
        if not accepts_attention_masks(network) or rope.get("rope_type") in MOVING_ROPES:
            return None
        try:
            return cls._build_if_cache_is_exact(network)
        except (
            *(TypeError, ValueError, RuntimeError, AttributeError),
            *(LookupError, AssertionError, NotImplementedError),
        ):  # code of other architectures may not support caches, masks or positions
            return None

    @classmethod
    @torch.no_grad()
    def _build_if_cache_is_exact(cls, network: PreTrainedModel) -> Self | None:
        ids = torch.arange(NUM_PROBED) % network.config.get_text_config().vocab_size
        cache = DynamicCache(config=network.config)
        out = network.base_model(
            input_ids=ids[None].to(network.device), past_key_values=cache, use_cache=True
        )
        shape = _CacheShape.from_cache(cache)
        if shape is None:
            return None
        body, first = cls(network, shape), ids.tolist()
        half = NUM_PROBED // 2
        [(begun, long), (_, short)] = body.run(
            [
                [PrefixContinuation(token_ids=first[:half], prefix_key=0)],
                [PrefixContinuation(token_ids=first[:1], prefix_key=1)],
            ]
        )
        rest = PrefixContinuation(
            token_ids=first[half:],
            cached_keys_and_values=[long],
            num_cached_tokens=half,
            prefix_key=2,
        )
        again = PrefixContinuation(
            token_ids=first[1:half],
            cached_keys_and_values=[short],
            num_cached_tokens=1,
            prefix_key=3,
        )
        [(ended, _), _, (repeated, _)] = body.run([[rest], [again, again]])
        wanted = out.last_hidden_state[0]
        states = torch.cat([begun, ended, repeated])
        wanted = torch.cat([wanted, wanted[1:half]])
        allowed = max(PROBED_ERROR, 16 * torch.finfo(states.dtype).eps) * float(wanted.abs().max())
        return body if float((states - wanted).abs().max()) <= allowed else None

    def group_into_batches(
        self, requests: Sequence[PrefixContinuation], *, num_workers: int
    ) -> list[list[Row]]:
        """Group requests into batches whose rows have similar lengths.

        Args:
            requests: continuations to compute, in any order.
            num_workers: number of batches that run in parallel.
        """
        rows = sorted(_group_into_rows(requests), key=_count_new_and_cached_tokens)
        most = -(-sum(len(request.token_ids) for request in requests) // num_workers)
        allowed = MAX_PADDING.get(self._network.device.type, MAX_PADDING_ELSEWHERE)
        batches: list[list[Row]] = []
        num_new = longest = 0
        for row in rows:
            new, past = _count_new_and_cached_tokens(row)
            count = len(batches[-1]) + 1 if batches else 0
            if (
                not batches
                or count * new - num_new - new > allowed
                or count * (new + max(longest, past)) > BATCH_TOKENS
                or num_new >= most
            ):
                batches.append([])
                num_new = longest = 0
            batches[-1].append(row)
            num_new, longest = num_new + new, max(longest, past)
        return batches

    def run(self, rows: Sequence[Row]) -> list[tuple[Tensor, Tensor]]:
        """Compute the hidden states of one batch of rows.

        Returns:
            One pair per continuation, in the order of `rows`: the last layer's hidden states of its
            tokens [tokens, width], and its keys and values for use in
            `PrefixContinuation.cached_keys_and_values`.
        """
        shape, device = self._shape, self._network.device
        num_new = max(_count_new_and_cached_tokens(row)[0] for row in rows)
        num_past = max(row[0].num_cached_tokens for row in rows)
        length = num_past + num_new
        kept = shape.join_cached_keys_and_values(
            [(row[0].cached_keys_and_values, row[0].num_cached_tokens) for row in rows],
            num_past,
            num_new,
        )
        ids, depth, mask = _build_network_inputs(rows, num_past, num_new)
        out = self._network.base_model(
            input_ids=ids.to(device),
            position_ids=depth.to(device),
            attention_mask=_make_attention_bias(mask.to(device), kept.dtype),
            past_key_values=shape.make_cache(kept, len(rows), num_past),
            use_cache=True,
        )
        results = []
        for index, row in enumerate(rows):
            start = 0
            for request in row:
                end = start + len(request.token_ids)
                place = index * length + num_past
                new = kept[:, place + start : place + end].clone()
                results.append((out.last_hidden_state[index, start:end], new))
                start = end
        return results


@dataclass(frozen=True, kw_only=True)
class _CacheShape:
    """The shape of the keys and values, which is the same in every layer."""

    num_layers: int
    num_heads: int
    """Number of key and value heads of a layer."""
    head_dim: int
    """Width of a head."""
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def from_cache(cls, cache: DynamicCache) -> Self | None:
        """Return the shape of the keys and values in a filled cache.

        Return None if the layers differ in shape or are not plain attention layers.
        """
        layers = [layer for layer in cache.layers if type(layer) is DynamicLayer]
        parts = [part for layer in layers for part in (layer.keys, layer.values)]
        keys = [part for part in parts if part is not None and part.shape[2] == NUM_PROBED]
        if not keys or len(keys) < 2 * len(cache.layers):
            return None
        if len({(part.shape, part.dtype, part.device) for part in keys}) != 1:
            return None
        return cls(
            num_layers=len(cache.layers),
            num_heads=keys[0].shape[1],
            head_dim=keys[0].shape[3],
            dtype=keys[0].dtype,
            device=keys[0].device,
        )

    def join_cached_keys_and_values(
        self,
        cached_parts_and_lengths: Sequence[tuple[Sequence[Tensor], int]],
        num_past: int,
        num_new: int,
    ) -> Tensor:
        """Join the cached keys and values of a batch into one tensor with room for new tokens.

        Its shape is [2 * layers, rows * tokens, heads * head_dim]. Each row has space for `num_new`
        new tokens on the right. Rows are padded on the left with zeros, because masked values must
        be finite.

        Args:
            cached_parts_and_lengths: cached keys and values, and number of cached tokens, one pair
                per row.
            num_past: largest number of cached tokens in a row.
            num_new: largest number of new tokens in a row.
        """
        width = self.num_heads * self.head_dim
        nothing = torch.zeros(2 * self.num_layers, num_past + num_new, width, dtype=self.dtype)
        nothing = nothing.to(self.device)
        pieces: list[Tensor] = []
        gap = 0
        for past, length in cached_parts_and_lengths:
            pieces += [nothing[:, : gap + num_past - length], *past]
            gap = num_new
        return torch.cat([*pieces, nothing[:, :gap]], dim=1)

    def make_cache(self, cached_keys_and_values: Tensor, num_rows: int, num_past: int) -> Cache:
        """Return a transformers cache that reads and extends `cached_keys_and_values`.

        Args:
            cached_keys_and_values: result of `join_cached_keys_and_values`.
            num_rows: number of rows of the batch.
            num_past: largest number of cached tokens in a row.
        """
        views = cached_keys_and_values.view(
            len(cached_keys_and_values), num_rows, -1, self.num_heads, self.head_dim
        ).transpose(2, 3)
        pairs = zip(views[0::2], views[1::2], strict=True)
        return Cache(
            layers=[_PreallocatedCacheLayer(keys, values, num_past) for keys, values in pairs]
        )


class _PreallocatedCacheLayer(DynamicLayer):
    """Keys and values [rows, heads, tokens, head_dim] of one layer, with room for new tokens."""

    def __init__(self, keys: Tensor, values: Tensor, num_past: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values, self._num_past = keys, values, num_past
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        assert self.keys is not None and self.values is not None
        self.keys[:, :, self._num_past :] = key_states
        self.values[:, :, self._num_past :] = value_states
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self._num_past


def _group_into_rows(requests: Sequence[PrefixContinuation]) -> Iterator[Row]:
    """Yield rows of at most `ROW_TOKENS` tokens that group the continuations of one prefix."""
    alike: defaultdict[Hashable, Row] = defaultdict(list)
    for request in requests:
        alike[request.prefix_key].append(request)
    for all_of_one in alike.values():
        row: Row = []
        for request in sorted(all_of_one, key=lambda request: len(request.token_ids)):
            if (
                row
                and sum(len(other.token_ids) for other in row) + len(request.token_ids) > ROW_TOKENS
            ):
                yield row
                row = []
            row.append(request)
        yield row


def _count_new_and_cached_tokens(row: Row) -> tuple[int, int]:
    """Return a row's number of new tokens, and the number of cached tokens before them."""
    return sum(len(request.token_ids) for request in row), row[0].num_cached_tokens


def _build_network_inputs(
    rows: Sequence[Row], num_past: int, num_new: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ids [rows, new], positions [rows, new] and attention mask [rows, new, tokens].

    All three describe the new tokens of the rows. The mask is True where a new token attends to a
    token.
    """
    ids, depth = torch.zeros(2, len(rows), num_new, dtype=torch.long)
    owner = torch.full((len(rows), num_new), -1)
    for index, row in enumerate(rows):
        flat = [token for request in row for token in request.token_ids]
        ids[index, : len(flat)] = torch.tensor(flat)
        start = 0
        for number, request in enumerate(row):
            end = start + len(request.token_ids)
            depth[index, start:end] = torch.arange(
                request.num_cached_tokens, request.num_cached_tokens + len(request.token_ids)
            )
            owner[index, start:end] = number
            start = end
    # Padding tokens attend to some tokens, too: attention to no token would give NaN.
    own = (owner[:, :, None] == owner[:, None]) & torch.ones(num_new, num_new).tril().bool()
    lengths = torch.tensor([row[0].num_cached_tokens for row in rows])
    there = torch.arange(num_past) >= num_past - lengths[:, None]
    return ids, depth, torch.cat([there[:, None].expand(-1, num_new, -1), own], dim=-1)


def _make_attention_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the bias [rows, 1, new, tokens] to add to attention scores, from a boolean mask."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(
        ~mask, torch.finfo(dtype).min
    )[:, None]
