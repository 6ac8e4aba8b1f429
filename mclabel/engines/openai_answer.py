"""What an OpenAI-compatible server answers, read with care: any field may lack or be anything."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import BadAnswer, EngineError
from mclabel.core.settings import MAX_TOKENS

if TYPE_CHECKING:
    from openai import AsyncOpenAI


_SHOWN = 80
"""Characters of what a server sent that are shown."""


@dataclass(frozen=True, kw_only=True)
class ServerAnswer:
    """One completion, as a server gives it."""

    text: str
    """Empty where the server gives none."""
    has_text: bool
    refusal: str
    """What the model says instead of an answer, of a service that tells it apart."""
    ids: tuple[int, ...] | None
    """Sampled tokens; None where the server gives none."""
    finish_reason: str
    """As the server says."""
    num_read: int
    """Tokens of the prompt."""
    num_cached: int | None
    """Of these, those that were found in a cache; None where the server does not say."""
    num_sampled: int | None
    """Tokens of the answer by the server's count, thoughts that it keeps included."""
    prompt_ids: tuple[int, ...] | None


def json_object(content: bytes, path: str) -> dict[str, Any]:
    """The object that an answer holds.

    Raises:
        BadAnswer: it holds none.
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
    return answer


def read_answer(answer: dict[str, Any], api: str, *, may_lack_text: bool = False) -> ServerAnswer:
    """The completion in an answer.

    Args:
        answer: to a request for one completion.
        api: that was asked, `completions` or `chat`.
        may_lack_text: whether an answer without text and without ids is one.

    Raises:
        BadAnswer: it holds none; names the field.
    """
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    usage = answer.get("usage")
    if not isinstance(choice, dict):
        raise bad_answer("has no choices")
    num_read = _count(usage.get("prompt_tokens")) if isinstance(usage, dict) else None
    if not isinstance(usage, dict) or num_read is None:
        raise bad_answer("has no usage.prompt_tokens")
    ids = _ids(choice.get("token_ids"), "choices[0].token_ids")
    name = "text" if api == "completions" else "message.content"
    message = choice if api == "completions" else choice.get("message")
    if not isinstance(message, dict):
        raise bad_answer("has no choices[0].message")
    text = message.get("text" if api == "completions" else "content")
    if not isinstance(text, str) and not (text is None and (may_lack_text or ids is not None)):
        raise bad_answer(f"has no text in choices[0].{name}")
    reason = choice.get("finish_reason")
    if not isinstance(reason, str):
        raise bad_answer("has no choices[0].finish_reason")
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    refusal = message.get("refusal")
    return ServerAnswer(
        text=text or "",
        has_text=text is not None,
        refusal=refusal if isinstance(refusal, str) else "",
        ids=ids,
        finish_reason=reason,
        num_read=num_read,
        num_cached=None if cached is None else min(cached, num_read),
        num_sampled=_count(usage.get("completion_tokens")),
        prompt_ids=_ids(
            answer.get("prompt_token_ids", choice.get("prompt_token_ids")), "prompt_token_ids"
        ),
    )


def _count(value: Any) -> int | None:
    """A number of tokens; None if it can be none."""
    return value if type(value) is int and 0 <= value <= MAX_TOKENS else None


def _ids(value: Any, name: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(one) is int and one >= 0 for one in value):
        raise bad_answer(f"has no token ids in {name}")
    return tuple(value)


def bad_answer(fault: str) -> BadAnswer:
    """The error of an answer that lacks what it must have.

    Args:
        fault: a clause of which the answer is the subject.
    """
    return BadAnswer(
        f"policy.engine: an answer of the server {fault}, as one of an OpenAI-compatible "
        "server has. Check policy.engine.endpoints"
    )


async def served_models(client: AsyncOpenAI) -> list[dict[str, Any]]:
    """The models that a server lists.

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
    """The answer to a request for a completion.

    Args:
        client: of the server.
        api: `completions` or `chat`.
        body: of the request.

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
