"""Incremental scoring of solution prefixes: only the new tokens of a longer prefix are computed.

A search scores a prefix, samples several continuations, and scores the longer prefixes. Each
prefix keeps the keys and values of its own tokens and a reference to the prefix that it continues.
A tree therefore stores every token once, and prefixes that the search drops are freed. If memory is
limited, the least recently used tensors are dropped and recomputed when they are needed. The scores
are the same as those of `PRM.score_encoded` for the whole prefix.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import TypeGuard, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from mclabel.core.errors import DataError
from mclabel.prm.examples.batch import PADDING, count_parallel_batches, open_parallel_map
from mclabel.prm.model.cached import CachedBody, PrefixContinuation, Row
from mclabel.prm.model.heads import (
    LikelihoodHead,
    TokenHead,
    compute_likelihood_features,
    compute_target_logprobs,
)
from mclabel.prm.scoring.score import PRM
from mclabel.prm.scoring.scorer import Scorer


@dataclass(frozen=True, kw_only=True)
class _PrefixState:
    """State of a prefix's own tokens, which is needed to compute later tokens.

    The own tokens of a prefix are those that its parent does not contain.
    """

    cache: Tensor
    """Keys and values of the tokens, in the format of `CachedBody.run`."""
    state: Tensor
    """Last layer's hidden state of the last token [width], which predicts the next token."""
    logprobs: Tensor
    """Log-probability of each token [tokens], on the CPU; empty if the head does not need it."""

    @property
    def num_bytes(self) -> int:
        """Return the size of the tensors in bytes."""
        return sum(tensor.nbytes for tensor in (self.cache, self.state, self.logprobs))


class ScoredPrefix:
    """A problem and the first steps of a solution, with the scores of the steps.

    Its public attributes never change. Its tensors are freed when this prefix and all prefixes that
    continue it are freed.
    """

    __slots__ = (
        *("__weakref__", "_computed", "_ids", "num_tokens"),
        *("parent", "positions", "scores"),
    )

    def __init__(
        self,
        *,
        ids: tuple[int, ...],
        parent: ScoredPrefix | None = None,
        positions: tuple[int, ...] = (),
        scores: tuple[float, ...] = (),
        computed: _PrefixState | None = None,
    ) -> None:
        """Create a prefix. Only `IncrementalPRM` calls this.

        Args:
            ids: token ids that the parent does not contain.
            parent: prefix that this one continues; None for a problem without steps.
            positions: for each step, the token index at which it is scored, counted from the start
                of the prompt.
            scores: scores of all steps, in [0, 1].
            computed: state of the tokens in `ids`; None if it is not computed yet.
        """
        self.parent = parent
        """The prefix that this one continues; None for a problem without steps."""
        self.scores = scores
        """Scores of all steps of the prefix, in [0, 1], as from `PRM.score_encoded`."""
        self.positions = positions
        """Positions of all steps of the prefix, as in `EncodedSolution`."""
        self.num_tokens: int = len(ids) + (0 if parent is None else parent.num_tokens)
        """Number of tokens that the PRM reads, including the prompt and step tokens."""
        self._ids = ids
        self._computed = computed  # None if not computed yet, or dropped to save memory

    @property
    def _required_state(self) -> _PrefixState:
        assert self._computed is not None, "missing states must be computed first"
        return self._computed

    def _list_ancestors_and_self(self) -> list[ScoredPrefix]:
        """Return all ancestors of this prefix, the oldest first, and then the prefix itself."""
        path = [self]
        while (parent := path[-1].parent) is not None:
            path.append(parent)
        return path[::-1]


def supports_incremental_scoring(scorer: Scorer) -> TypeGuard[PRM]:
    """Return whether `IncrementalPRM` supports a scorer. Other scorers must read whole solutions.

    The scorer must be a PRM of the format `mclabel` in this process, and all its layers must attend
    to all earlier tokens. Sliding windows, recurrent layers, and attention implementations other
    than PyTorch's are not supported.
    """
    return (
        isinstance(scorer, PRM)
        and isinstance(scorer.model, TokenHead | LikelihoodHead)
        and CachedBody.from_network(scorer.model.network) is not None
    )


class IncrementalPRM:
    """Scores prefixes of solutions by extending shorter prefixes. It is not thread-safe."""

    def __init__(self, prm: PRM, *, threads: int | None = None, max_bytes: float = inf) -> None:
        """Score incrementally with a PRM.

        Args:
            prm: a PRM for which `supports_incremental_scoring` is true.
            threads: number of CPU threads; None uses `prm.threads`.
            max_bytes: maximum bytes of keys and values that are kept between two calls of `extend`.
        """
        body = CachedBody.from_network(prm.model.network)
        assert body is not None and isinstance(prm.model, TokenHead | LikelihoodHead)
        self._model: TokenHead | LikelihoodHead = prm.model
        self._body, self._encoder = body, prm.encoder
        self._threads = prm.threads if threads is None else threads
        self._problems: WeakValueDictionary[str, ScoredPrefix] = WeakValueDictionary()
        self._max_bytes = max_bytes
        self._sizes: WeakKeyDictionary[ScoredPrefix, int] = WeakKeyDictionary()
        """Size in bytes of each computed prefix, from the least to the most recently used."""
        self.last_computed: list[int] = []
        """Number of tokens computed for each request of the last call of `extend`. Tokens computed
        for several requests count for the first of these requests."""
        self.num_computed = 0
        """Total number of tokens that were computed."""
        self.num_cached = 0
        """Total number of tokens that the cache saved. Passes over whole solutions would have
        computed them in addition to `num_computed`."""

    def begin(self, problem: str) -> ScoredPrefix:
        """Return the prefix that consists of a problem without steps.

        The prompt is computed when the prefix is extended for the first time.
        """
        root = self._problems.get(problem)
        if root is None:
            root = ScoredPrefix(ids=self._encoder.prompt_ids(problem))
            self._problems[problem] = root
        return root

    def decodes_to_same_text(self, ids: Sequence[int], text: str) -> bool:
        """Return whether the PRM's tokenizer decodes a policy's token ids to the same text.

        If it returns False, the ids must not be passed to `extend`.
        """
        return self._encoder.decodes_to(ids, text)

    def extend(
        self, requests: Sequence[tuple[ScoredPrefix, Sequence[Sequence[int]]]]
    ) -> list[ScoredPrefix | DataError]:
        """Score continuations of prefixes as a batch. Equal continuations are computed once.

        Args:
            requests: pairs of a prefix and its new steps. Each step is given as token ids without
                step tokens.

        Returns:
            For each request, in order, the longer prefix or an error. A `TooLongError` means that
            the prefix would be too long. Another `DataError` means that there are no steps, or that
            a step is empty or contains a step token.
        """
        refused: dict[int, DataError] = {}
        places: dict[_Key, list[int]] = {}
        for place, (prefix, steps) in enumerate(requests):
            try:
                if not all(len(step) for step in steps):
                    raise DataError("solution: has a step without tokens")
                ids, positions = self._encoder.join_steps(
                    steps, num_tokens_before=prefix.num_tokens
                )
                places.setdefault((prefix, ids, positions), []).append(place)
            except DataError as error:
                refused[place] = error.with_traceback(None)  # its frames would keep tensors alive
        restored = self._restore_states_and_count_tokens([prefix for prefix, _, _ in places])
        results: dict[int, ScoredPrefix | DataError] = {**refused}
        self.last_computed = [0] * len(requests)
        computed = self._compute_pending_prefixes([_PendingPrefix(*key) for key in places])
        for (prefix, ids, _), at, longer in zip(places, places.values(), computed, strict=True):
            results.update(dict.fromkeys(at, longer))
            num_restored = restored.pop(prefix, 0)
            self.last_computed[at[0]] = len(ids) + num_restored
            self.num_cached += prefix.num_tokens - num_restored
        self._keep_recent_states(computed)
        return [results[place] for place in range(len(requests))]

    def _restore_states_and_count_tokens(
        self, prefixes: Sequence[ScoredPrefix]
    ) -> dict[ScoredPrefix, int]:
        """Compute the missing tensors of prefixes and of their ancestors.

        Tensors are missing for new prompts, and if they were dropped to save memory.

        Returns:
            Number of tokens computed for each prefix with missing tensors.
        """
        missing: dict[int, dict[ScoredPrefix, None]] = defaultdict(dict)
        num_restored: Counter[ScoredPrefix] = Counter()
        seen: set[ScoredPrefix] = set()
        for prefix in prefixes:
            for depth, ancestor in enumerate(prefix._list_ancestors_and_self()):
                if ancestor._computed is None and ancestor not in seen:
                    missing[depth][ancestor] = None
                    num_restored[prefix] += len(ancestor._ids)
                    seen.add(ancestor)
        for depth in sorted(missing):
            those = list(missing[depth])
            again = self._compute_pending_prefixes(
                [_PendingPrefix(ancestor.parent, ancestor._ids, ()) for ancestor in those]
            )
            for ancestor, restored in zip(those, again, strict=True):
                ancestor._computed = restored._computed
        return num_restored

    def _keep_recent_states(self, prefixes: Sequence[ScoredPrefix]) -> None:
        """Mark prefixes and their ancestors as just used, and drop tensors beyond `max_bytes`."""
        if self._max_bytes == inf:
            return
        for prefix in prefixes:
            for ancestor in reversed(
                prefix._list_ancestors_and_self()
            ):  # the root comes last, so it is dropped last
                self._sizes.pop(ancestor, None)
                self._sizes[ancestor] = ancestor._required_state.num_bytes
        total = sum(list(self._sizes.values()))
        for ancestor, size in list(self._sizes.items()):
            if total <= self._max_bytes:
                break
            ancestor._computed = None
            del self._sizes[ancestor]
            total -= size

    def _compute_pending_prefixes(self, pending: Sequence[_PendingPrefix]) -> list[ScoredPrefix]:
        """Compute the tokens of pending prefixes, and return the scored prefixes in order."""
        network = self._model.network
        pending_by_tokens = {entry.continuation: entry for entry in pending}
        batches = self._body.group_into_batches(
            list(pending_by_tokens), num_workers=count_parallel_batches(network, self._threads)
        )
        scored_by_pending: dict[_PendingPrefix, ScoredPrefix] = {}

        @torch.no_grad()
        def compute_rows(rows: list[Row]) -> dict[_PendingPrefix, ScoredPrefix]:
            group = [pending_by_tokens[request] for row in rows for request in row]
            return dict(
                zip(group, self._make_scored_prefixes(group, self._body.run(rows)), strict=True)
            )

        if batches:
            with open_parallel_map(network, self._threads) as each:
                for results in each(compute_rows, batches):
                    scored_by_pending.update(results)
        self.num_computed += sum(len(entry.ids) for entry in pending)
        return [scored_by_pending[entry] for entry in pending]

    def _make_scored_prefixes(
        self, pending: Sequence[_PendingPrefix], computed: Sequence[tuple[Tensor, Tensor]]
    ) -> list[ScoredPrefix]:
        """Return the scored prefixes of a batch.

        Args:
            pending: pending prefixes of the batch.
            computed: hidden states and cache of each prefix's new tokens, from `CachedBody.run`.
        """
        states = torch.cat([own for own, _ in computed])
        logprobs = self._compute_logprobs(pending, states)
        scores = iter(self._compute_new_scores(pending, states, logprobs))
        return [
            ScoredPrefix(
                ids=entry.ids,
                parent=entry.prefix,
                positions=entry.old_positions + entry.positions,
                scores=entry.old_scores + tuple(next(scores) for _ in entry.positions),
                computed=_PrefixState(cache=cache, state=own[-1].clone(), logprobs=those),
            )
            for entry, (own, cache), those in zip(pending, computed, logprobs, strict=True)
        ]

    def _compute_logprobs(self, pending: Sequence[_PendingPrefix], states: Tensor) -> list[Tensor]:
        """Return the log-probabilities of each prefix's new tokens, from states [tokens, width]."""
        last = [entry.prefix._required_state.state for entry in pending if entry.prefix is not None]
        if isinstance(self._model, TokenHead) or not last:
            return [torch.zeros(0)] * len(pending)
        before = states.roll(1, dims=0)
        before[_list_new_token_starts(pending)] = torch.stack(last)
        ids = torch.tensor(
            [token for entry in pending for token in entry.ids], device=states.device
        )
        flat = compute_target_logprobs(
            before, ids, cast(nn.Module, self._model.network.get_output_embeddings())
        ).cpu()
        return [part.clone() for part in flat.split([len(entry.ids) for entry in pending])]

    def _compute_new_scores(
        self, pending: Sequence[_PendingPrefix], states: Tensor, logprobs: Sequence[Tensor]
    ) -> list[float]:
        """Return the scores of the new steps of all prefixes, concatenated."""
        at = [
            start + position - entry.num_before
            for entry, start in zip(pending, _list_new_token_starts(pending), strict=True)
            for position in entry.positions
        ]
        if not at:
            return []
        head_inputs = states[at]
        if isinstance(self._model, LikelihoodHead):
            features = _compute_new_features(pending, logprobs).to(states.device)
            head_inputs = self._model.join_head_inputs(head_inputs, features)
        logits = self._model.apply_head(head_inputs.float()[None])
        scores: list[float] = self._model.log_odds(logits)[0].float().sigmoid().tolist()
        return scores


_Key = tuple[ScoredPrefix, tuple[int, ...], tuple[int, ...]]
"""Identifies a continuation: the prefix, its new token ids, and the token indices of its new
steps."""


class _PendingPrefix:
    """Tokens to compute: the continuation of a prefix or, if `prefix` is None, a prompt."""

    def __init__(
        self, prefix: ScoredPrefix | None, ids: tuple[int, ...], positions: tuple[int, ...]
    ) -> None:
        self.prefix, self.ids, self.positions = prefix, ids, positions
        self.path = [] if prefix is None else prefix._list_ancestors_and_self()
        self.num_before = 0 if prefix is None else prefix.num_tokens
        self.old_positions = () if prefix is None else prefix.positions
        self.old_scores = () if prefix is None else prefix.scores
        self.continuation = PrefixContinuation(
            token_ids=ids,
            cached_keys_and_values=[ancestor._required_state.cache for ancestor in self.path],
            num_cached_tokens=self.num_before,
            prefix_key=object() if prefix is None else prefix,
        )


def _list_new_token_starts(pending: Sequence[_PendingPrefix]) -> list[int]:
    """Return the start of each prefix's new tokens in the concatenation of all new tokens."""
    return [0, *accumulate(len(entry.ids) for entry in pending)][:-1]


def _compute_new_features(pending: Sequence[_PendingPrefix], logprobs: Sequence[Tensor]) -> Tensor:
    """Return the likelihood features of the new steps of all prefixes, [steps, NUM_FEATURES]."""
    whole = [
        torch.cat([*(prefix._required_state.logprobs for prefix in entry.path), new])
        for entry, new in zip(pending, logprobs, strict=True)
    ]
    ends = [
        torch.tensor(entry.old_positions + entry.positions) - entry.path[0].num_tokens
        for entry in pending
    ]
    features = compute_likelihood_features(
        pad_sequence(whole, batch_first=True),
        pad_sequence(ends, batch_first=True, padding_value=PADDING),
    )
    return torch.cat(
        [
            row[len(entry.old_positions) :][: len(entry.positions)]
            for entry, row in zip(pending, features, strict=True)
        ]
    )
