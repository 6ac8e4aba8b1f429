"""The protocols of engines: `Policy` continues token ids, `Engine` is the component that runs it.

Beside sampling, an engine answers before anything is loaded what it takes of a cluster, which model
its labels rest on and whether this machine has what it needs. `CheckedEngine` checks the results of
a user's engine. docs/extending-engine.md writes one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from mclabel.core.boundary import Boundary, Guard, shown
from mclabel.core.components import component_name
from mclabel.core.errors import EngineError
from mclabel.core.records import Completion, TokenId
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.engines.settings import EngineSettings, PolicySettings

if TYPE_CHECKING:
    from torch import Tensor


NO_ROOM = Completion(ids=(), text="", finish_reason="length")
"""The completion of a prefix that leaves no room for new tokens."""
MAX_TOKEN_CHARS = 1024
"""Maximum number of characters per token, assumed by engines that do not know their tokenizer."""


def never_fits(num_chars: int, policy: Policy) -> str | None:
    """Return the size of a text that is too long for the policy, without tokenising it; else None.

    Args:
        num_chars: characters of the text.
        policy: started.
    """
    if num_chars <= policy.max_context * policy.max_token_chars:
        return None
    return f"{num_chars:,} characters, more than could ever be {policy.max_context:g} tokens"


def limited(max_tokens: int | None, stop: Sequence[str] = ()) -> dict[str, Any]:
    """The arguments `max_tokens` and `stop` of `sample`, those that are given, so that an engine
    that knows nothing of them serves all other callers.
    """
    limits: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {**limits, "stop": tuple(stop)} if stop else limits


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """Statistics of an engine since it was made, and its current load."""

    num_live: int = 0
    """Completions being sampled."""
    max_live: int = 0
    """Maximum number of completions sampled at the same time; 0 means no limit."""
    num_waiting: int = 0
    num_sampled_tokens: int = 0
    num_prefill_tokens: int = 0
    """Number of prompt tokens computed, not counting those found in the cache."""
    num_cached_tokens: int | None = None
    """Number of prompt tokens found in the cache; None if the engine does not report it."""
    kv_usage: float | None = None
    """Fraction of the KV cache that live completions occupy, in [0, 1]; None if the engine does not
    report it."""
    num_preemptions: int = 0
    """Number of completions evicted from the KV cache, which are computed again."""
    num_signs: int = 0
    """Signs of life beside tokens, such as news of a batch that is not ended."""
    counts_as_sampled: bool = True
    """True if tokens are counted as soon as they are sampled. If False, they are counted when their
    completion ends."""


@dataclass(frozen=True, kw_only=True)
class PolicyPreview:
    """Facts about a policy from its configuration and tokenizer, before its engine is started."""

    tokenizer: str
    """Class of the tokenizer."""
    prompt: str
    """Description of how a problem is rendered as a prompt."""
    ends: Sequence[str]
    """Texts of the tokens that end a completion, for display."""
    max_context: float
    """Maximum number of tokens in prompt and solution together; infinite if unknown."""
    max_token_chars: int
    """Characters of the longest token."""
    prompt_ids: Callable[[str], Sequence[int]]
    """The prompt of a problem."""
    marked: Callable[[Sequence[int]], str]
    """The text of ids for a reader, with control tokens marked."""


class Policy(Protocol):
    """A language model with its sampling parameters, which an engine runs.

    Token ids are the currency: a prefix is continued by its ids, never by its text.
    """

    async def start(self) -> None:
        """Load the model, anew if it was closed: what is counted then goes on.

        Raises:
            EngineError: it cannot be loaded; the message has the reason and the remedy.
        """

    @property
    def max_context(self) -> float:
        """Maximum number of tokens in prompt and solution together; infinite if unknown."""

    def room(self, num_prompt: int, num_prefix: int) -> float:
        """Return how many more tokens `policy.max_tokens` and the model's context allow.
        no room.
        """

    @property
    def max_token_chars(self) -> int:
        """Characters of the longest token: a text of more than so many for each token of a context
        cannot fit, which is known without tokenising it.
        """

    @abstractmethod
    def prompt_ids(self, problem: str) -> tuple[TokenId, ...]:
        """Return the rendered prompt of a problem, up to where the solution begins."""

    @abstractmethod
    def encode(self, text: str) -> tuple[TokenId, ...]:
        """Tokenise a given solution in one piece, without special tokens."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens kept."""

    @abstractmethod
    async def sample(
        self,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        seed: int,
        priority: int = 0,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
    ) -> Completion:
        """Sample one completion of a prompt and the solution's first ids.

        Args:
            prompt: ids from `prompt_ids`.
            prefix: ids of the solution so far, possibly none.
            seed: in [0, 2**63). The same seed need not give the same completion.
            priority: lower is sampled first.
            max_tokens: most tokens of the solution, `prefix` included; None is what the settings
                of the policy allow.
            stop: texts that end this completion, beside those that end every one: the token that
                completes one of them is its last. The completion is then `at_stop`, and the caller
                is likely to continue it.

        Raises:
            EngineError: the engine died.
        """

    def stats(self) -> EngineStats:
        """Return a snapshot; callable from any thread."""

    async def close(self) -> None:
        """Free the model; completions under way fail.

        Limits and texts (`max_context`, `room`, `encode`, `decode`, `prompt_ids`) stay known.
        """


class Engine(Policy):
    """Runs a policy. Derive from it for the defaults.

    `Settings` is the class of its settings; a configuration that names the engine by `kind` holds
    the others beside it, and the engine finds them in `self.settings`. What is computed where the
    engine lives, such as loading a model, belongs into `start`: an engine is also made only to be
    asked what it takes.
    """

    Settings: ClassVar[type[EngineSettings]] = EngineSettings
    continues: ClassVar[bool] = True
    """True if the engine continues a prefix. One that only answers whole prompts serves critics;
    every other job refuses it before it begins."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Packages whose versions are recorded with labels, beside those that every job records. One
    that is not installed is left out."""

    policy: PolicySettings
    settings: Any
    """An instance of `Settings`."""
    seed: int

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without loading anything.

        Args:
            policy: with this engine's settings as its `engine`.
            seed: seed of the run.
        """
        self.policy, self.settings, self.seed = policy, policy.engine, seed

    # What is known before the start

    @property
    def place(self) -> str:
        """Place where the engine computes, as shown in a plan."""
        return "here"

    def resources(self) -> EngineResources:
        """CPUs and GPUs that its actor reserves on a cluster."""
        return ONE_CPU

    def model_identity(self) -> str:
        """Return the text that identifies the model in the identity of a run.

        By default the engine's own name: labels of an engine that does not run `policy.model` are
        not mixed with those of a model. One that does run it derives from `ModelEngine`.
        """
        return component_name("engines", type(self))

    def check_environment(self) -> None:
        """Check that this machine has what the engine needs besides the model, such as a key.

        Raises:
            ConfigError: something is missing; the message has the remedy.
        """

    def model_commit(self) -> str | None:
        """Return the commit that `policy.revision` names now; None if the model has none.

        Raises:
            EngineError: the model cannot be found or downloaded.
        """
        return None

    def num_parameters(self) -> int | None:
        """Return the number of the model's parameters, by which the costs of models compare.

        None where the engine cannot tell.

        Raises:
            EngineError: the model cannot be found, or its files are damaged.
        """
        return None

    def check_model(self) -> None:
        """Check that the model can be loaded, without reading its weights.

        Raises:
            EngineError: its files are damaged or unsupported, or need code of their own to run.
        """

    def preview(self) -> PolicyPreview | None:
        """Read the model's configuration and tokenizer; None if the engine has no such files.

        Raises:
            EngineError: there is no such model, or its files are damaged.
        """
        return None

    # The policy

    async def start(self) -> None:
        """Do nothing: there is nothing to load."""

    @property
    def max_context(self) -> float:
        """There is no limit."""
        return inf

    def room(self, num_prompt: int, num_prefix: int) -> float:
        """Return how many more tokens `policy.max_tokens` and the model's context allow."""
        return self.policy.room(num_prompt, num_prefix, self.max_context)

    @property
    def max_token_chars(self) -> int:
        """A bound that the tokens of any tokenizer keep."""
        return MAX_TOKEN_CHARS

    def chat_ids(
        self, turns: Sequence[tuple[str, str]], problem: str
    ) -> tuple[TokenId, ...] | None:
        """Render a chat that stops behind its last question, without the mark of an answer.

        None from an engine that renders no chat.

        Args:
            turns: earlier questions and answers, in order.
            problem: the question to ask now.
        """
        return None

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Log-probability, in nats, of each of some tokens as the next one.

        They are the model's own: temperature, top_p and top_k do not enter. None from an engine
        that gives none.

        Args:
            prompt: ids from `prompt_ids`.
            prefix: ids of what follows it, which leave room for one token in `max_context`.
            tokens: ids of the tokens.

        Raises:
            EngineError: the engine died.
        """
        return None

    async def update_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the model's weights, and forget all that was computed with the old ones.

        For reinforcement learning. Nothing may be sampled meanwhile.

        Args:
            weights: tensors of the model by the names that transformers gives them.

        Raises:
            EngineError: the engine cannot, it is sampling, or the tensors are not the model's.
        """
        raise EngineError(
            f"policy.engine={component_name('engines', type(self))}: cannot take new weights while "
            "it runs. Choose policy.engine=hf or policy.engine=vllm"
        )

    def stats(self) -> EngineStats:
        """Return a snapshot; callable from any thread."""
        return EngineStats()

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""


class CheckedEngine(Guard):
    """An engine behind its boundary, whose load is counted here where it has no statistics."""

    def __init__(self, target: type[Engine], policy: PolicySettings, *, seed: int = 0) -> None:
        """Make an engine; see `make_engine`."""
        around = Boundary("engines", target)
        super().__init__(
            around.call("__init__", target, policy, seed=seed, slow=True), Engine, around
        )
        self.policy, self.settings, self.seed = policy, policy.engine, seed
        self._num_live = self._num_tokens = 0

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """Sample one completion of a prompt and the solution's first ids."""
        sample, rule = self.component.sample, self._fault
        self._num_live += 1
        try:
            completion: Completion = await self.boundary.acall(
                "sample", sample, prompt, prefix, result_type=Completion, rule=rule, **how
            )
        finally:
            self._num_live -= 1
        self._num_tokens += completion.num_tokens or 0
        return completion

    def _fault(
        self,
        completion: Completion,
        prompt: Sequence[int],
        prefix: Sequence[int],
        *,
        max_tokens: int | None = None,
        stop: Sequence[str] = (),
        **how: object,
    ) -> str | None:
        room = self.room(len(prompt), len(prefix))
        if max_tokens is not None:
            room = self.policy.room(len(prompt), len(prefix), self.max_context, max_tokens)
        if completion.at_stop and not stop:
            return "gave at_stop=True, but was not asked to stop at a text"
        if completion.num_tokens is not None and completion.num_tokens > room:
            return (
                f"gave {completion.num_tokens:,} ids after a prefix of {len(prefix):,}, must give "
                f"{room:,} at most (policy.max_tokens, and what the model takes)"
            )
        if (text := self.decode(completion.ids)) != completion.text:
            return (
                f"gave text={shown(completion.text)}, but its decode of the ids gives "
                f"{shown(text)}: a prefix is continued by its ids, so both must be the same"
            )
        return None

    def stats(self) -> EngineStats:
        """Return a snapshot; callable from any thread."""
        stats: EngineStats = self.boundary.call(
            "stats", self.component.stats, result_type=EngineStats
        )
        if type(self.component).stats is not Engine.stats:
            return stats
        return replace(
            stats,
            num_live=self._num_live,
            num_sampled_tokens=self._num_tokens,
            counts_as_sampled=False,
        )
