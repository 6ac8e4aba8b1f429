"""Requests of the `openai` engine as the client of that name sends them, and answers as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mclabel.engines.openai_answer import json_object
from mclabel.errors import EngineError

if TYPE_CHECKING:
    from openai import AsyncOpenAI


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
            "policy.engine=openai: /models does not return a list of models, so this is not an "
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
    return json_object(raw.http_response.content, f"/{api}")
