"""Parses responses of OpenAI-compatible servers, in which any field may be missing or invalid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import EngineError, UnusableResponse
from mclabel.core.records import FinishReason
from mclabel.core.settings import MAX_TOKENS
from mclabel.engines.endpoints import BusyError, ErrorResponse, read_error_message

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_SHOWN = 80
"""Maximum number of characters of a server's response that a message quotes."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields of a message that hold the model's reasoning. DeepSeek, SGLang and older versions of vLLM
use the first one; OpenRouter and newer versions of vLLM use the second one."""
_STOPS = frozenset({"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn"})
_CUTS = frozenset({"length", "model_length", "max_tokens", "max_output_tokens", "token_limit"})
_FAILURES = frozenset({"content_filter", "error", "safety", "recitation", "refusal"})
_BUSY_ENDS = frozenset({"abort", "insufficient_system_resource"})  # vLLM, DeepSeek
"""Values of `finish_reason` by which a server says that it is too busy. The three sets above hold
the values for a complete completion, for one cut off at its maximum length, and for a failure."""


@dataclass(frozen=True, kw_only=True)
class ServerCompletion:
    """Fields of one completion in a server's response."""

    text: str
    """Text of the completion; empty if the response has no text."""
    has_text: bool
    """True if the response has a text, even an empty one."""
    refusal: str
    """The model's refusal to answer, from a service that marks refusals; else empty."""
    ids: tuple[int, ...] | None
    """Ids of the sampled tokens; None if the server does not return them."""
    reasoning: str
    """Text in one of `REASONING_FIELDS`; empty if both are missing."""
    finish_reason: str | None
    """Server's `finish_reason`, which says why the completion ended; None if it is missing."""
    error: str
    """Message of an error that interrupted the completion; empty if there was no error."""
    num_read: int | None
    """Number of prompt tokens that the server read; None if the server does not report it."""
    num_cached: int | None
    """Number of prompt tokens found in a cache; None if the server does not report it."""
    num_sampled: int | None
    """Number of tokens of the completion as counted by the server, including hidden reasoning; None
    if the server does not report it."""
    prompt_ids: tuple[int, ...] | None
    """Token ids of the prompt; None if the server does not return them."""

    def normalised_finish_reason(self, room: int) -> FinishReason:
        """Return the finish reason in mclabel's terms: `stop`, `length`, or `failed`.

        `failed` means that the server aborted the completion. An unknown or missing reason counts
        as `stop`, or as `length` if the completion has the maximum number of tokens.

        Args:
            room: maximum number of tokens that the request allowed.

        Raises:
            BusyError: the server was too busy to answer.
        """
        word = (self.finish_reason or "").lower()
        if word in _BUSY_ENDS:
            raise BusyError(f"a completion finished with finish_reason={self.finish_reason!r}")
        if self.error or word in _FAILURES:
            return "failed"
        if word in _CUTS:
            return "length"
        num_tokens = self.num_sampled if self.ids is None else len(self.ids)
        is_full = num_tokens is not None and num_tokens >= room
        return "length" if word not in _STOPS and is_full else "stop"

    @property
    def has_known_finish_reason(self) -> bool:
        """True if the server's `finish_reason` is one of the values that mclabel knows."""
        return (self.finish_reason or "").lower() in _STOPS | _CUTS | _FAILURES | _BUSY_ENDS


def parse_json_object(content: bytes, path: str) -> dict[str, Any]:
    """Return the JSON object in the body of a response.

    Args:
        content: body of the response.
        path: path of the request's URL, for messages.

    Raises:
        UnusableResponse: the body is not a JSON object.
        ErrorResponse: the object is an error.
    """
    try:
        response = json.loads(content)
    except (ValueError, RecursionError) as invalid:
        shown = content[:_SHOWN].decode(errors="replace")
        raise UnusableResponse(
            f"policy.engine: {path} does not return JSON but {shown!r}, so this is not an "
            "OpenAI-compatible server. Check policy.engine.endpoints (most end in /v1)"
        ) from invalid
    if not isinstance(response, dict):
        raise make_bad_response_error("is not a JSON object")
    error = response if response.get("object") == "error" else response.get("error")
    if error and not response.get("choices"):
        raise ErrorResponse(error)
    return response


def parse_server_completion(
    response: dict[str, Any], api: str, *, may_lack_text: bool = False
) -> ServerCompletion:
    """Read the completion in a response.

    Args:
        response: response to a request for one completion.
        api: name of the API, `completions` or `chat`.
        may_lack_text: True to accept a response that has neither text nor token ids.

    Raises:
        UnusableResponse: the response lacks a required field, which the message names.
    """
    choices = response.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise make_bad_response_error("has no choices")
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    num_read = _parse_token_count(usage.get("prompt_tokens"))
    ids = _parse_token_ids(choice.get("token_ids"), "choices[0].token_ids")
    name = "text" if api == "completions" else "message.content"
    message = choice if api == "completions" else choice.get("message")
    if not isinstance(message, dict):
        raise make_bad_response_error("has no choices[0].message")
    text = message.get("text" if api == "completions" else "content")
    if not isinstance(text, str) and not (text is None and (may_lack_text or ids is not None)):
        raise make_bad_response_error(f"has no text in choices[0].{name}")
    reason = choice.get("finish_reason")
    error = choice.get("error")
    thoughts = (message.get(field) for field in REASONING_FIELDS)
    details = usage.get("prompt_tokens_details")
    cached = _parse_token_count(details.get("cached_tokens")) if isinstance(details, dict) else None
    refusal = message.get("refusal")
    return ServerCompletion(
        text=text or "",
        has_text=text is not None,
        refusal=refusal if isinstance(refusal, str) else "",
        ids=ids,
        reasoning=next((text for text in thoughts if isinstance(text, str) and text), ""),
        finish_reason=reason if isinstance(reason, str) and reason else None,
        error=read_error_message(error) if error else "",
        num_read=num_read,
        num_cached=None if cached is None or num_read is None else min(cached, num_read),
        num_sampled=_parse_token_count(usage.get("completion_tokens")),
        prompt_ids=_parse_token_ids(
            response.get("prompt_token_ids", choice.get("prompt_token_ids")), "prompt_token_ids"
        ),
    )


def _parse_token_count(value: Any) -> int | None:
    """Return the value if it is a valid number of tokens, else None."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _parse_token_ids(value: Any, field: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        type(token_id) is int and token_id >= 0 for token_id in value
    ):
        raise make_bad_response_error(f"has no token ids in {field}")
    return tuple(value)


def make_bad_response_error(fault: str) -> UnusableResponse:
    """Return the error for a response that lacks a required part.

    Args:
        fault: predicate that follows "a response of the server", such as "has no choices".
    """
    return UnusableResponse(
        f"policy.engine: a response of the server {fault}, so it is not a response of an "
        "OpenAI-compatible server. Check policy.engine.endpoints"
    )


async def list_served_models(client: AsyncOpenAI) -> list[dict[str, Any]]:
    """Return the models that a server lists.

    Raises:
        EngineError: the response is not a list of models.
    """
    raw = await client.models.with_raw_response.list()
    response = parse_json_object(raw.http_response.content, "/models")
    models = response.get("data")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise EngineError(
            "policy.engine: /models does not return a list of models, so this is not an "
            "OpenAI-compatible server. Check policy.engine.endpoints (most end in /v1)"
        )
    return models


async def post_completion_request(
    client: AsyncOpenAI, api: str, body: dict[str, Any]
) -> dict[str, Any]:
    """Send a request for a completion and return the response.

    Args:
        client: client of the server.
        api: `completions` or `chat`.
        body: body of the request.

    Raises:
        UnusableResponse: the response is not a JSON object.
    """
    model = body["model"]
    raw: Any
    # The body is passed as `extra_body`, because the client supports few of the parameters, and
    # would check every token id.
    if api == "completions":
        raw = await client.completions.with_raw_response.create(
            model=model, prompt="", extra_body=body
        )
    else:
        raw = await client.chat.completions.with_raw_response.create(
            model=model, messages=[], extra_body=body
        )
    path = "/completions" if api == "completions" else "/chat/completions"
    return parse_json_object(raw.http_response.content, path)
