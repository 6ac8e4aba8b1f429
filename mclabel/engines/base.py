"""What an engine is: it runs a policy, which continues token ids under fixed sampling parameters.

`Policy` is what labelling asks of an engine that runs. `Engine` is the component that a
configuration chooses: beside sampling it answers, before anything is loaded, what it takes of a
cluster, which model its labels rest on and whether this machine has what it needs. A class that
derives from `Engine` has defaults for all but the sampling. docs/extending.md writes one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Protocol

from mclabel.components import component_name
from mclabel.engines.resources import ONE_CPU, EngineResources
from mclabel.engines.settings import EngineSettings, PolicySettings
from mclabel.records import Completion

NO_ROOM = Completion(ids=(), text="", finish_reason="length")
"""What follows a prefix that leaves no room."""
MAX_TOKEN_CHARS = 1024
"""Characters of a token, where an engine does not know its tokenizer's longest."""


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
    """Prompt tokens found in the cache; None if the engine does not report it."""
    kv_usage: float | None = None
    """Share of the KV cache that live completions hold; None if the engine does not report it."""
    num_preemptions: int = 0
    """Completions thrown out of the KV cache, to be computed again."""
    counts_as_sampled: bool = True
    """Whether tokens are counted as they are sampled; if not, when their completion has ended."""


@dataclass(frozen=True, kw_only=True)
class PolicyPreview:
    """What a policy's small files show before its engine is started."""

    tokenizer: str
    """Its kind."""
    prompt: str
    """How a problem becomes a prompt, in words."""
    ends: Sequence[str]
    """Texts of the tokens that end a completion."""
    max_context: float
    """Tokens of prompt and solution together that the model takes; infinite if not known."""
    max_token_chars: int
    """Characters of the longest token."""
    prompt_ids: Callable[[str], Sequence[int]]
    """The prompt of a problem."""


class Policy(Protocol):
    """A language model with its sampling parameters, which an engine runs.

    Token ids are the currency: a prefix is continued by its ids, never by its text.
    """

    async def start(self) -> None:
        """Load the model.

        Raises:
            EngineError: it cannot be loaded; the message has the reason and the remedy.
        """
        ...

    @property
    def max_context(self) -> float:
        """Tokens of prompt and solution together that the model takes; infinite if not known."""
        ...

    def room(self, num_prompt: int, num_prefix: int) -> float:
        """Tokens that may be sampled after a prompt and a prefix; 0 where there is no room."""
        ...

    @property
    def max_token_chars(self) -> int:
        """Characters of the longest token: a text of more than so many for each token of a context
        cannot fit, which is known without tokenising it.
        """
        ...

    @abstractmethod
    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """The rendered prompt of a problem, up to where the solution begins."""
        ...

    @abstractmethod
    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a given solution, tokenised in one piece without special tokens."""
        ...

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens kept."""
        ...

    @abstractmethod
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


class Engine(Policy):
    """Runs a policy. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the engine by `kind` holds
    the others beside it, and the engine finds them in `self.settings`. What is computed where the
    engine lives, such as loading a model, belongs into `start`: an engine is also made only to be
    asked what it takes.
    """

    Settings: ClassVar[type[EngineSettings]] = EngineSettings
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages whose versions are recorded with labels, beside those that every job records. One
    that is not installed is left out."""

    policy: PolicySettings
    settings: Any
    """An instance of `Settings`."""
    seed: int

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Keep what the engine is to run, and load nothing.

        Args:
            policy: with this engine's settings as its `engine`.
            seed: of the run.
        """
        self.policy, self.settings, self.seed = policy, policy.engine, seed

    # What is known before the start

    @property
    def place(self) -> str:
        """Where it computes, as a plan shows it."""
        return "here"

    def resources(self) -> EngineResources:
        """What its actor takes of a cluster."""
        return ONE_CPU

    def model_identity(self) -> str:
        """What stands for the model in the identity of a run.

        By default the engine's own name: labels of an engine that does not run `policy.model` are
        not mixed with those of a model. One that does run it derives from `ModelEngine`.
        """
        return component_name("engines", type(self))

    def check_environment(self) -> None:
        """See that this machine has what the engine needs beside the model, such as a key.

        Raises:
            ConfigError: it has not; the message has the remedy.
        """

    def model_commit(self) -> str | None:
        """The commit that `policy.revision` names now; None where the model has none.

        Raises:
            EngineError: the model cannot be had.
        """
        return None

    def check_model(self) -> None:
        """See that the model can be loaded, without reading its weights.

        Raises:
            EngineError: its files are no good, or want code of their own to be run.
        """

    def preview(self) -> PolicyPreview | None:
        """What the model's small files show; None where there is nothing to look at.

        Raises:
            EngineError: there is no such model, or its files are no good.
        """
        return None

    # The policy

    async def start(self) -> None:
        """Do nothing: there is nothing to load."""

    @property
    def max_context(self) -> float:
        """No bound."""
        return inf

    def room(self, num_prompt: int, num_prefix: int) -> int:
        """What `policy.max_tokens` and the model's context leave."""
        return self.policy.room(num_prompt, num_prefix, self.max_context)

    @property
    def max_token_chars(self) -> int:
        """A bound that the tokens of any tokenizer keep."""
        return MAX_TOKEN_CHARS

    def stats(self) -> EngineStats:
        """No figures."""
        return EngineStats()

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""
