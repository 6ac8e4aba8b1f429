"""The `hosted` engine: a hosted chat service, which returns texts; usable for critics only.

Such a service neither takes nor returns token ids. This engine therefore uses the UTF-8 bytes of a
text as its ids, and takes the number of tokens from the service's `usage`. Services refuse unknown
parameters, so only parameters of OpenAI's chat completions are sent. The setting `parameters` adds
or omits parameters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field

from mclabel.core.errors import ConfigError, EngineError
from mclabel.core.records import Completion, FinishReason
from mclabel.core.settings import ONE_VALUE, OPERATIONAL, rule
from mclabel.engines.chat import build_chat_messages
from mclabel.engines.endpoints import Endpoints, RefusedError
from mclabel.engines.openai_response import (
    ServerCompletion,
    parse_server_completion,
    post_completion_request,
)
from mclabel.engines.served import ServedEngine, ServerSettings
from mclabel.engines.settings import PolicySettings
from mclabel.engines.text import PROBE

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_LENGTHS = ("max_completion_tokens", "max_tokens")
"""Possible names of the parameter that limits the tokens of a completion."""
_OWN = frozenset({"model", "messages", "n", "stream", "stream_options", *_LENGTHS})
"""Request parameters that the setting `parameters` must not contain, because mclabel sets them."""
_NOT_TAKEN = ("template", "template_variables", "top_k", "stop_token_ids", "max_model_len")
"""Settings of a policy that a hosted service does not support, so they must not be set."""


class HostedEngine(ServedEngine):
    """Runs a critic's policy on a hosted chat service, which cannot continue a given prefix."""

    class Settings(ServerSettings):
        """A hosted chat service, such as OpenAI's API or a compatible one. For critics only."""

        model: str = Field(min_length=1)
        """Name of the model at the service."""
        length_parameter: Annotated[Literal["max_completion_tokens", "max_tokens"], OPERATIONAL] = (
            "max_completion_tokens"
        )
        """Name of the request parameter that limits the tokens of a completion."""
        parameters: Annotated[dict[str, Any], ONE_VALUE] = Field({}, max_length=64)
        """More request parameters, such as {reasoning_effort: low}; {temperature: null} omits the
        temperature."""
        read_reasoning: bool = False
        """True to take a completion from the reasoning field if its content is empty."""

        @property
        def served_model_name(self) -> str | None:
            """Name of the model in requests."""
            return self.model

        @rule
        def _check_reserved_parameters(self) -> str | None:
            if taken := sorted(_OWN & self.parameters.keys()):
                return (
                    f"parameters: {', '.join(taken)} is set by mclabel itself. Set the model by "
                    "the key model, and the number of tokens by judge.max_tokens and "
                    "length_parameter"
                )
            return None

        @rule
        def _check_parameters_are_json(self) -> str | None:
            try:
                sent = json.dumps(self.parameters, allow_nan=False, ensure_ascii=False).encode()
                is_same = json.loads(sent) == self.parameters
            except (TypeError, ValueError, RecursionError):
                is_same = False
            if is_same:
                return None
            return (
                f"parameters={ascii(self.parameters)[:80]}: must contain only JSON values: texts, "
                "finite numbers, true, false, null, lists, and mappings with texts as keys. Put "
                "dates, and keys that are numbers, in quotes"
            )

    continues: ClassVar[bool] = False

    settings: Settings

    def __init__(self, policy: PolicySettings, *, seed: int = 0) -> None:
        """Store the policy without connecting.

        Raises:
            ConfigError: the policy has settings that a hosted service does not support.
        """
        super().__init__(policy, seed=seed)
        if useless := [f"policy.{name}" for name in _NOT_TAKEN if getattr(policy, name)]:
            raise ConfigError(
                f"{', '.join(useless)}: not supported by policy.engine=hosted, which sends "
                "messages to a service. Remove these keys. Put parameters that the service has in "
                "addition to OpenAI's into policy.engine.parameters"
            )

    @property
    def api(self) -> str:
        """Name of the API, `chat`: hosted services take chat messages."""
        return "chat"

    async def check_servers(self, endpoints: Endpoints) -> None:
        """Request a short completion from each endpoint to check that it works.

        Not every service lists its models, so the list cannot be used for this check.
        """
        room = self.policy.room(0, 0, inf)
        body = self._build_request_body(PROBE, room, self.seed)

        async def request(client: AsyncOpenAI) -> Completion:
            server_completion = self._read_server_completion(
                await post_completion_request(client, self.api, body)
            )
            if (
                _is_text_in_reasoning_field(server_completion, room)
                and not self.settings.read_reasoning
            ):
                raise EngineError(
                    f"policy.engine=hosted: {_describe_misplaced_text(server_completion)}"
                )
            return self._build_completion(server_completion, room)

        try:
            await endpoints.send_to_each(request, retry_s=self.start_s)
        except RefusedError as error:
            remedy = self._find_refusal_remedy(error.__cause__)
            raise EngineError(f"{error}. {remedy}" if remedy else str(error)) from error

    # The text side

    def prompt_ids(self, problem: str) -> tuple[int, ...]:
        """Return the UTF-8 bytes of a problem's text, which stand for the prompt.

        The system message and examples are left out, since their length matters only if the context
        limit is known, and here it is not.
        """
        return self.encode(problem)

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the UTF-8 bytes of a text; characters that UTF-8 lacks become question marks."""
        return tuple(text.encode(errors="replace"))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of UTF-8 bytes."""
        return bytes(ids).decode(errors="replace")

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
        """Sample a whole completion to a prompt.

        If the service gives no text, the completion has the finish reason `failed`, and its
        text is the reason.
        """
        if prefix or stop:
            raise EngineError(
                "policy.engine=hosted: this engine cannot continue a solution from a prefix. "
                "Choose policy.engine=openai with a vLLM server, or policy.engine=vllm"
            )
        room = self.policy.room(0, 0, inf, max_tokens)
        body = self._build_request_body(self.decode(prompt), room, seed)
        affinity_key = hash(tuple(prompt))
        return await self.request_completion(
            body,
            lambda response: self._build_completion(self._read_server_completion(response), room),
            affinity_key=affinity_key,
            priority=priority,
        )

    # Requests

    def _build_request_body(self, problem: str, room: int, seed: int) -> dict[str, Any]:
        policy, settings = self.policy, self.settings
        body: dict[str, Any] = {
            "model": settings.model,
            "messages": build_chat_messages(problem, system=policy.system, turns=policy.examples),
            settings.length_parameter: room,
            "temperature": policy.temperature,
            "top_p": policy.top_p,
            "stop": list(policy.stop) or None,
            "seed": seed if settings.per_request_seeds else None,
            **settings.parameters,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _read_server_completion(self, response: dict[str, Any]) -> ServerCompletion:
        server_completion = parse_server_completion(response, self.api, may_lack_text=True)
        self.warn_of_missing_fields(server_completion)
        return server_completion

    def _build_completion(self, completion: ServerCompletion, room: int) -> Completion:
        """Return the completion in a service's response.

        If the service withholds the completion, the completion has the finish reason `failed`, and
        its text is the reason.

        Args:
            completion: completion of the service.
            room: maximum number of tokens that the request allowed.
        """
        finish_reason, text = completion.normalised_finish_reason(room), completion.text
        why = _find_withheld_reason(completion, finish_reason)
        if _is_text_in_reasoning_field(completion, room):
            text = completion.reasoning
            why = "" if self.settings.read_reasoning else _describe_misplaced_text(completion)
        self.add_token_counts(completion, completion.num_sampled)
        assert self._endpoints is not None
        ids = self.encode(self._endpoints.redact_message(why) if why else text)
        return Completion(
            ids=ids,
            text=self.decode(ids),
            finish_reason="failed" if why else finish_reason,
            num_counted=completion.num_sampled,
            is_counted=completion.num_sampled is not None,
        )

    def _find_refusal_remedy(self, cause: BaseException | None) -> str:
        """Return what the user can do about a refused test request; empty if no remedy is known.

        Args:
            cause: the client's exception, which may name the refused parameter.
        """
        if getattr(cause, "status_code", None) not in (400, 422):
            return ""
        name = getattr(cause, "param", None)
        if name == self.settings.length_parameter:
            other = _LENGTHS[1 - _LENGTHS.index(name)]
            return f"Set policy.engine.length_parameter={other}"
        shown = name if isinstance(name, str) and name.isidentifier() else "NAME"
        return (
            f"policy.engine.parameters={{{shown}: null}} omits the parameter {shown}; another "
            "value replaces it"
        )


def _is_text_in_reasoning_field(completion: ServerCompletion, room: int) -> bool:
    """Return whether a finished completion has no text outside of the field for reasoning."""
    is_whole = completion.normalised_finish_reason(room) == "stop" and not completion.refusal
    return is_whole and not completion.text.strip() and bool(completion.reasoning.strip())


def _describe_misplaced_text(completion: ServerCompletion) -> str:
    return (
        "the field message.content of a response is empty, and its text of "
        f"{len(completion.reasoning):,} characters is in the field reasoning_content or reasoning. "
        "Set policy.engine.read_reasoning=true, or serve the model with the right reasoning parser"
    )


def _find_withheld_reason(completion: ServerCompletion, finish_reason: FinishReason) -> str:
    """Return the reason why the service withholds the completion; empty if it does not."""
    if completion.refusal:
        return f"the model refuses to answer: {completion.refusal}"
    if completion.error:
        return f"the service broke the completion off: {completion.error}"
    if completion.finish_reason == "content_filter":
        return (
            "the service's content filter withholds the completion (finish_reason content_filter)"
        )
    if finish_reason == "failed":
        return f"the service broke the completion off (finish_reason {completion.finish_reason})"
    if not completion.has_text and finish_reason != "length":
        return f"the completion has no text (finish_reason {completion.finish_reason})"
    return ""
