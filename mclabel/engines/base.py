"""Protocols of engines: a `Policy` continues token ids, and an `Engine` runs a policy.

Before the model is loaded, an engine reports the cluster resources that it needs and the identity
of its model, and it checks the environment of this machine. `CheckedEngine` checks the results of
a user's engine. docs/extending-engine.md shows how to write an engine.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Protocol

from mclabel.core.boundary import Boundary, Guard, describe_value
from mclabel.core.components import find_component_name
from mclabel.core.records import Completion, TokenId
from mclabel.engines.devices import ONE_CPU, EngineResources
from mclabel.engines.settings import EngineSettings, PolicySettings

NO_ROOM = Completion(ids=(), text="", finish_reason="length")
"""Empty completion, returned if prompt and prefix leave no room for new tokens."""
MAX_TOKEN_CHARS = 1024
"""Maximum number of characters per token, assumed by engines that do not know their tokenizer."""


def describe_oversized_text(num_chars: int, policy: Policy) -> str | None:
    """Return a description of the size of a text that cannot fit into the context, else None.

    The text is not tokenised: it cannot fit if even tokens of maximum length would be too many.

    Args:
        num_chars: number of characters of the text.
        policy: policy that would read the text; it must be started.
    """
    if num_chars <= policy.max_context * policy.max_token_chars:
        return None
    return f"{num_chars:,} characters, more than could ever be {policy.max_context:g} tokens"


def build_limit_arguments(max_tokens: int | None, stop: Sequence[str] = ()) -> dict[str, Any]:
    """Return the arguments `max_tokens` and `stop` for `sample`, without those that are unset.

    An engine whose `sample` lacks these parameters can thus serve callers that do not set them.
    """
    limits: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
    return {**limits, "stop": tuple(stop)} if stop else limits


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """Statistics of an engine since it was made, and its current load."""

    num_live: int = 0
    """Number of completions being sampled now."""
    max_live: int = 0
    """Maximum number of completions sampled at the same time; 0 means no limit."""
    num_waiting: int = 0
    """Number of requested completions that are not being sampled yet."""
    num_sampled_tokens: int = 0
    """Number of tokens sampled since the engine was made."""
    num_prefill_tokens: int = 0
    """Number of prompt and prefix tokens computed, without the tokens found in the cache."""
    num_cached_tokens: int | None = None
    """Number of prompt and prefix tokens found in the cache; None if the engine does not report
    it."""
    kv_usage: float | None = None
    """Fraction of the KV cache that live completions occupy, in [0, 1]; None if the engine does not
    report it."""
    num_preemptions: int = 0
    """Number of times that a completion was evicted from the KV cache and had to be recomputed."""
    counts_as_sampled: bool = True
    """True if each token is counted as soon as it is sampled. If False, the tokens of a completion
    are counted when the completion ends."""


@dataclass(frozen=True, kw_only=True)
class PolicyPreview:
    """Facts about a policy from its configuration and tokenizer, before its engine is started."""

    tokenizer: str
    """Name of the tokenizer's class."""
    prompt: str
    """Description of how a problem is rendered as a prompt."""
    ends: Sequence[str]
    """Texts of the tokens that end a completion, such as `<|im_end|>`, for display."""
    max_context: float
    """Maximum number of tokens in prompt and solution together; infinite if unknown."""
    max_token_chars: int
    """Number of characters of the longest token."""
    prompt_ids: Callable[[str], Sequence[int]]
    """Function from the text of a problem to the token ids of its prompt."""
    mark_control_tokens: Callable[[Sequence[int]], str]
    """Function from token ids to their text for display, with control tokens marked."""


class Policy(Protocol):
    """A language model with its sampling parameters, run by an engine.

    A policy continues the token ids of a prefix, never the prefix's text: tokenising the prefix's
    text again could give other ids.
    """

    async def start(self) -> None:
        """Load the model. A closed policy may be started again; its counters are not reset.

        Raises:
            EngineError: the model cannot be loaded; the message has the reason and the remedy.
        """

    @property
    def max_context(self) -> float:
        """Maximum number of tokens in prompt and solution together; infinite if unknown."""

    def room(self, num_prompt: int, num_prefix: int) -> float:
        """Return how many more tokens of the solution `policy.max_tokens` and the context allow.

        Args:
            num_prompt: number of tokens of the prompt.
            num_prefix: number of tokens of the solution so far.
        """

    @property
    def max_token_chars(self) -> int:
        """Number of characters of the longest token, or an upper bound.

        A text longer than this number times `max_context` cannot fit, so it need not be tokenised.
        """

    @abstractmethod
    def prompt_ids(self, problem: str) -> tuple[TokenId, ...]:
        """Return the rendered prompt of a problem, up to where the solution begins."""

    @abstractmethod
    def encode(self, text: str) -> tuple[TokenId, ...]:
        """Tokenise the text of a solution in one piece, without adding special tokens."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of token ids, including the text of special tokens."""

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
        """Sample one completion of a prompt and of the beginning of a solution.

        Args:
            prompt: token ids from `prompt_ids`.
            prefix: token ids of the solution so far; may be empty.
            seed: random seed in [0, 2**63). The same seed need not give the same completion.
            priority: priority of the request; requests with a lower number are sampled first.
            max_tokens: maximum number of tokens of the solution, including `prefix`; None uses
                `policy.max_tokens`.
            stop: texts that end this completion, in addition to `policy.stop`. The token that
                completes one of these texts is the last token of the completion. The completion
                then has `at_stop=True`, and the caller is likely to continue it.

        Raises:
            EngineError: the engine has died.
        """

    def stats(self) -> EngineStats:
        """Return the counters and the load at this moment; callable from any thread."""

    async def close(self) -> None:
        """Free the model; unfinished completions fail.

        `max_context`, `room`, `encode`, `decode` and `prompt_ids` still work afterwards.
        """


class Engine(Policy):
    """Component that runs a policy; the base class of all engines, with defaults.

    `Settings` is the class of the engine's settings. In a configuration these settings stand beside
    the key `kind`, which names the engine; the engine reads them from `self.settings`. Expensive
    work, such as loading a model, belongs in `start`: some engines are made only to report their
    resources.
    """

    Settings: ClassVar[type[EngineSettings]] = EngineSettings
    continues: ClassVar[bool] = True
    """True if the engine can continue a prefix. An engine that only answers whole prompts serves
    critics alone; all other jobs refuse such an engine before they begin."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Python packages whose versions are recorded with the labels, in addition to the packages that
    every job records. A package that is not installed is left out."""

    policy: PolicySettings
    settings: Any
    """An instance of `Settings`."""
    seed: int

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without loading anything.

        Args:
            policy: settings of the policy; their field `engine` holds this engine's settings.
            seed: seed of the run.
        """
        self.policy, self.settings, self.seed = policy, policy.engine, seed

    # Facts that are available before the start

    @property
    def place(self) -> str:
        """Device or server on which the engine computes, shown in the plan of a job."""
        return "here"

    def resources(self) -> EngineResources:
        """Return the CPUs and GPUs that the engine's Ray actor reserves on a cluster."""
        return ONE_CPU

    def model_identity(self) -> str:
        """Return a text that identifies the model. Runs with different identities are not mixed.

        The default is the engine's own name, so labels of an engine that does not run
        `policy.model` are not mixed with labels of a model. Engines that run `policy.model` derive
        from `ModelEngine`, which overrides this method.
        """
        return find_component_name("engines", type(self))

    def check_environment(self) -> None:
        """Check that this machine meets the engine's needs besides the model, such as an API key.

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
        """Return the number of the model's parameters, used to compare the costs of models.

        None means that the engine does not know the number.

        Raises:
            EngineError: the model cannot be found, or its files are damaged.
        """
        return None

    def check_model(self) -> None:
        """Check that the model can be loaded, without reading its weights.

        Raises:
            EngineError: the model's files are damaged or unsupported, or the model needs its own
                Python code, which is not trusted.
        """

    def preview(self) -> PolicyPreview | None:
        """Read the model's configuration and tokenizer; None if the engine has no such files.

        Raises:
            EngineError: there is no such model, or its files are damaged.
        """
        return None

    # The policy

    async def start(self) -> None:
        """Do nothing; an engine with a model overrides this method to load it."""

    @property
    def max_context(self) -> float:
        """Infinite: there is no limit by default."""
        return inf

    def room(self, num_prompt: int, num_prefix: int) -> float:
        """Return how many more tokens of the solution `policy.max_tokens` and the context allow."""
        return self.policy.room(num_prompt, num_prefix, self.max_context)

    @property
    def max_token_chars(self) -> int:
        """Upper bound on the characters of a token, for any tokenizer."""
        return MAX_TOKEN_CHARS

    def chat_ids(
        self, turns: Sequence[tuple[str, str]], problem: str
    ) -> tuple[TokenId, ...] | None:
        """Render a chat up to the end of its last question, without the start of an answer.

        Return None if the engine does not render chats.

        Args:
            turns: earlier questions and answers, in order.
            problem: the last question.
        """
        return None

    async def logprobs(
        self, prompt: Sequence[int], prefix: Sequence[int], tokens: Sequence[int]
    ) -> tuple[float, ...] | None:
        """Return the log-probability of each given token as the next token, in nats.

        These are the model's own probabilities: temperature, top_p and top_k are not applied.
        Return None if the engine cannot compute log-probabilities.

        Args:
            prompt: token ids from `prompt_ids`.
            prefix: token ids after the prompt. Prompt and prefix must leave room for one more
                token in `max_context`.
            tokens: ids of the candidate next tokens.

        Raises:
            EngineError: the engine has died.
        """
        return None

    def stats(self) -> EngineStats:
        """Return the counters and the load at this moment; callable from any thread."""
        return EngineStats()

    async def close(self) -> None:
        """Do nothing; an engine with a model overrides this method to free it."""


class CheckedEngine(Guard):
    """Wrapper of a user's engine that checks the types and ranges of each result.

    If the engine does not implement `stats`, the wrapper counts its completions and tokens.
    """

    def __init__(self, target: type[Engine], policy: PolicySettings, *, seed: int = 0) -> None:
        """Make the user's engine without starting it."""
        around = Boundary("engines", target)
        super().__init__(
            around.call("__init__", target, policy, seed=seed, slow=True), Engine, around
        )
        self.policy, self.settings, self.seed = policy, policy.engine, seed
        self._num_live = self._num_tokens = 0

    async def sample(self, prompt: Sequence[int], prefix: Sequence[int], **how: Any) -> Completion:
        """Sample one completion, and check it. The arguments are those of `Policy.sample`."""
        sample, rule = self.component.sample, self._find_completion_fault
        self._num_live += 1
        try:
            completion: Completion = await self.boundary.call_async(
                "sample", sample, prompt, prefix, result_type=Completion, rule=rule, **how
            )
        finally:
            self._num_live -= 1
        self._num_tokens += completion.num_tokens or 0
        return completion

    def _find_completion_fault(
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
            return "gave at_stop=True, but the request had no stop texts"
        if completion.num_tokens is not None and completion.num_tokens > room:
            return (
                f"gave {completion.num_tokens:,} ids after a prefix of {len(prefix):,}, must give "
                f"{room:,} at most (because of policy.max_tokens and the model's context)"
            )
        if (text := self.decode(completion.ids)) != completion.text:
            return (
                f"gave text={describe_value(completion.text)}, but its method decode turns the ids "
                f"into {describe_value(text)}. A prefix is continued by its ids, so both texts "
                "must be the same"
            )
        return None

    def stats(self) -> EngineStats:
        """Return the counters and the load at this moment; callable from any thread."""
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
