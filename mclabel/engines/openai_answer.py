"""Parser of answers of OpenAI-compatible servers, in which any field may be missing or invalid."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import BadAnswer, EngineError
from mclabel.core.records import FinishReason
from mclabel.core.settings import MAX_TOKENS
from mclabel.engines.endpoints import BusyError, ErrorAnswer, error_words

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_SHOWN = 80
"""Characters of what a server sent that are shown."""
REASONING_FIELDS = ("reasoning_content", "reasoning")
"""Fields of a message for the thoughts of a model: of DeepSeek, SGLang and earlier versions of
vLLM, and of OpenRouter and later versions of vLLM."""
_STOPS = frozenset({"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn"})
_CUTS = frozenset({"length", "model_length", "max_tokens", "max_output_tokens", "token_limit"})
_FAILURES = frozenset({"content_filter", "error", "safety", "recitation", "refusal"})
_BUSY_ENDS = frozenset({"abort", "insufficient_system_resource"})  # vLLM, DeepSeek


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """One completion, as a server gives it."""

    text: str
    """Empty where the server gives none."""
    has_text: bool
    refusal: str
    """Text of the model in place of an answer, from a service that marks refusals."""
    ids: tuple[int, ...] | None
    """Sampled tokens; None where the server gives none."""
    reasoning: str
    """Text in one of `REASONING_FIELDS`; empty if there is none."""
    finish_reason: str | None
    """Word of the server for how the answer ended; None if it gives none."""
    error: str
    """Message of an error that broke the answer off; empty if there is none."""
    num_read: int | None
    """Tokens of the prompt; None if the server does not report them."""
    num_cached: int | None
    """Number of these found in a cache; None where the server does not report it."""
    num_sampled: int | None
    """Tokens of the answer by the server's count, thoughts that it keeps included; None if the
    server does not report them."""
    prompt_ids: tuple[int, ...] | None

    def end(self, room: int) -> FinishReason:
        """Return how the answer ended: `failed` if the server broke it off.

        An unknown word is an end unless the answer has as many tokens as it could have.

        Args:
            room: maximum number of tokens that were asked for.

        Raises:
            BusyError: the server was too busy to answer.
        """
        word = (self.finish_reason or "").lower()
        if word in _BUSY_ENDS:
            raise BusyError(f"an answer ended with {self.finish_reason!r}")
        if self.error or word in _FAILURES:
            return "failed"
        if word in _CUTS:
            return "length"
        num_tokens = self.num_sampled if self.ids is None else len(self.ids)
        is_full = num_tokens is not None and num_tokens >= room
        return "length" if word not in _STOPS and is_full else "stop"

    @property
    def has_known_end(self) -> bool:
        """Return whether the server names the end by a word that is known."""
        word = (self.finish_reason or "").lower()
        return word in _STOPS | _CUTS | _FAILURES | _BUSY_ENDS


def json_object(content: bytes, path: str) -> dict[str, Any]:
    """Return the object that an answer holds.

    Raises:
        BadAnswer: it holds none.
        ErrorAnswer: it holds an error instead.
    """
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError) as error:
        shown = content[:_SHOWN].decode(errors="replace")
        raise BadAnswer(
            f"policy.engine: {path} does not return JSON but {shown!r}, as no "
            "OpenAI-compatible server does. Check policy.engine.endpoints (most end in /v1)"
        ) from error
    if not isinstance(answer, dict):
        raise bad_answer("is no object")
    if (server_error := error_in(answer)) is not None:
        raise ErrorAnswer(server_error)
    return answer


def error_in(answer: dict[str, Any]) -> Any:
    """Return the error that a server sent in place of an answer; None if there is none."""
    if answer.get("choices"):
        return None
    return answer if answer.get("object") == "error" else answer.get("error") or None


def read_answer(answer: dict[str, Any], api: str, *, may_lack_text: bool = False) -> ServerAnswer:
    """Read the completion in a response.

    Args:
        answer: response to a request for one completion.
        api: API that was asked, `completions` or `chat`.
        may_lack_text: whether an answer without text and without ids is one.

    Raises:
        BadAnswer: it holds none; names the field.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict):
        raise bad_answer("has no choices")
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    num_read = _count(usage.get("prompt_tokens"))
    ids = _ids(choice.get("token_ids"), "choices[0].token_ids")
    name = "text" if api == "completions" else "message.content"
    message = choice if api == "completions" else choice.get("message")
    if not isinstance(message, dict):
        raise bad_answer("has no choices[0].message")
    text = message.get("text" if api == "completions" else "content")
    if not isinstance(text, str) and not (text is None and (may_lack_text or ids is not None)):
        raise bad_answer(f"has no text in choices[0].{name}")
    reason = choice.get("finish_reason")
    error = choice.get("error")
    thoughts = (message.get(field) for field in REASONING_FIELDS)
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    refusal = message.get("refusal")
    return ServerAnswer(
        text=text or "",
        has_text=text is not None,
        refusal=refusal if isinstance(refusal, str) else "",
        ids=ids,
        reasoning=next((text for text in thoughts if isinstance(text, str) and text), ""),
        finish_reason=reason if isinstance(reason, str) and reason else None,
        error=error_words(error) if error else "",
        num_read=num_read,
        num_cached=None if cached is None or num_read is None else min(cached, num_read),
        num_sampled=_count(usage.get("completion_tokens")),
        prompt_ids=_ids(
            answer.get("prompt_token_ids", choice.get("prompt_token_ids")), "prompt_token_ids"
        ),
    )


def _count(value: Any) -> int | None:
    """Return the value if it is a valid number of tokens, else None."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _ids(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(
        type(token_id) is int and token_id >= 0 for token_id in value
    ):
        raise bad_answer(f"has no token ids in {name}")
    return tuple(value)


def bad_answer(fault: str) -> BadAnswer:
    """Return the error of a response that lacks a required part.

    Args:
        fault: a clause of which the answer is the subject.
    """
    return BadAnswer(
        f"policy.engine: an answer of the server {fault}, as one of an OpenAI-compatible "
        "server has. Check policy.engine.endpoints"
    )


async def served_models(client: AsyncOpenAI) -> list[dict[str, Any]]:
    """Return the models that a server lists.

    Raises:
        EngineError: the answer is no list of models.
    """
    raw = await client.models.with_raw_response.list()
    answer = json_object(raw.http_response.content, "/models")
    models = answer.get("data")
    if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
        raise EngineError(
            "policy.engine: /models does not return a list of models, so this is not an "
            "OpenAI-compatible server. Check policy.engine.endpoints (most end in /v1)"
        )
    return models


async def post(client: AsyncOpenAI, api: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request for a completion and return the response.

    Args:
        client: client of the server.
        api: `completions` or `chat`.
        body: body of the request.

    Raises:
        BadAnswer: the answer is no JSON object.
    """
    model = body["model"]
    raw: Any
    # In `extra_body`, as the client knows few of the parameters, and would walk through the ids.
    if api == "completions":
        raw = await client.completions.with_raw_response.create(
            model=model, prompt="", extra_body=body
        )
    else:
        raw = await client.chat.completions.with_raw_response.create(
            model=model, messages=[], extra_body=body
        )
    path = "/completions" if api == "completions" else "/chat/completions"
    return json_object(raw.http_response.content, path)
