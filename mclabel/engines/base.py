"""What a policy is: something that continues token ids under fixed sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mclabel.records import Completion

NO_ROOM = Completion(ids=(), text="", finish_reason="length")
"""What follows a prefix that leaves no room."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How completions are sampled. A step's value is defined by the policy and by these."""

    temperature: float = 0.8
    """>= 0; 0 takes the likeliest token."""
    top_p: float = 1.0
    """In (0, 1]: sample from the smallest set of tokens that holds this probability."""
    top_k: int = 0
    """Sample from this many likeliest tokens; 0 for all."""
    max_tokens: int = 512
    """Sampled tokens a solution may have, the prefix's own included."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion. The token that completes one is the last, and is kept."""
    stop_token_ids: tuple[int, ...] = ()
    """Tokens that end a completion beside the model's end tokens. They are not kept."""

    def room(self, num_prompt: int, num_prefix: int, max_context: float) -> int:
        """Tokens that may be sampled after a prompt and a prefix; 0 where there is no room."""
        return int(max(0, min(self.max_tokens - num_prefix, max_context - num_prompt - num_prefix)))


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """What an engine has done since it was loaded, and what it does now."""

    num_live: int = 0
    """Completions being sampled."""
    max_live: int = 0
    """Completions that can be sampled at a time; 0 for no bound."""
    num_waiting: int = 0
    num_sampled_tokens: int = 0
    num_prefill_tokens: int = 0
    """Prompt tokens computed; those found in the cache are not counted."""
    num_cached_tokens: int | None = None
    """Prompt tokens found in the cache; None if the engine does not say."""
    kv_usage: float | None = None
    """Share of the KV cache that live completions hold; None if the engine does not say."""
    num_preemptions: int = 0
    """Completions thrown out of the KV cache, to be computed again."""
    counts_as_sampled: bool = True
    """Whether tokens are counted as they are sampled; if not, when their completion has ended."""


class Policy(Protocol):
    """An engine with a model and its sampling parameters.

    Token ids are the currency: a prefix is continued by its ids, never by its text.
    """

    async def start(self) -> None:
        """Load the model.

        Raises:
            EngineError: it cannot be loaded; says why and what to do.
        """
        ...

    @property
    def max_context(self) -> float:
        """Tokens of prompt and solution together that the model takes; infinite if not known."""
        ...

    @property
    def max_token_chars(self) -> int:
        """Characters of the longest token: a text of more than so many for each token of a context
        cannot fit, which is known without tokenising it.
        """
        ...

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """The rendered prompt of a problem, up to where the solution begins."""
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a given solution, tokenised in one piece without special tokens."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens kept."""
        ...

    async def sample(
        self, prompt: Sequence[int], prefix: Sequence[int], *, seed: int, priority: int = 0
    ) -> Completion:
        """One completion of a prompt and the solution's first ids.

        Args:
            prompt: ids from `prompt_ids`.
            prefix: ids of the solution so far, possibly none.
            seed: in [0, 2**63). The same seed need not give the same completion.
            priority: lower is sampled first.

        Raises:
            EngineError: the engine died.
        """
        ...

    def stats(self) -> EngineStats:
        """A snapshot, callable from any thread."""
        ...

    async def close(self) -> None:
        """Free the model; completions under way fail."""
        ...
