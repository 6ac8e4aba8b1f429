"""Our own test server of OpenAI's API, written from its documented types, which it checks strictly.

The requests and answers are checked by the types that openai-python has from OpenAI's
specification. Like OpenAI, the server refuses unknown parameters, and its errors have OpenAI's
form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from openai.types.chat import ChatCompletion
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter, ValidationError

from tests.support.openai_server import Server

KEY = "sk-secret-0123456789"
MODEL = "gpt-test"
NUM_THOUGHTS = 5
"""Number of hidden reasoning tokens in each answer."""
_REQUEST = TypeAdapter(CompletionCreateParamsNonStreaming)
_PARAMETERS = frozenset(CompletionCreateParamsNonStreaming.__annotations__)


class HostedServer(Server):
    """A server that answers with `answer(text of all messages)`: a text, or the choice's fields."""

    def __init__(
        self,
        answer: Callable[[str], str | dict[str, Any]],
        *,
        fixed: tuple[str, ...] = (),
        **server: Any,
    ) -> None:
        super().__init__(chat=True, key=KEY, names=(MODEL,), **server)
        self.answers, self.fixed = answer, fixed
        """Parameters that the model accepts no value for, as reasoning models accept no
        temperature.
        """
        self.departure: Callable[[str, dict[str, Any]], object] = lambda prompt, answer: None
        """Function that changes an answer to a prompt so that it departs from OpenAI's types."""
        self.errors: deque[tuple[int, str]] = deque()
        """Statuses and codes with which the next requests fail."""

    def add_routes(self, app: web.Application) -> None:
        super().add_routes(app)
        app.middlewares.append(self._guard)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {self.key}":
            return failure(401, "invalid_api_key", "Incorrect API key provided: sk-se***89.")
        return await handler(request)

    async def _models(self, request: web.Request) -> web.Response:
        model = {"id": MODEL, "object": "model", "created": 1, "owned_by": "us"}
        return web.json_response({"object": "list", "data": [model]})

    def _reply(self, request: web.Request, body: dict[str, Any], is_chat: bool) -> web.Response:
        if self.errors:
            status, code = self.errors.popleft()
            return failure(status, code, f"It is {code}.", headers={"Retry-After": "0.01"})
        if (refusal := self._refusal(body)) is not None:
            return refusal
        prompt = "\n".join(turn["content"] for turn in body["messages"])
        answered = self.answers(prompt)
        text = answered if isinstance(answered, str) else answered.get("content")
        tokens = (text or "").split(" ")
        room = body["max_completion_tokens"] - NUM_THOUGHTS
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
        choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": message}
        if len(tokens) > room:
            message["content"] = " ".join(tokens[: max(room, 0)])
            choice["finish_reason"] = "length"
        if isinstance(answered, dict):
            message |= {name: answered[name] for name in message if name in answered}
            choice |= {name: answered[name] for name in choice if name in answered}
        num_read = sum(len(turn["content"].split(" ")) for turn in body["messages"])
        num_sampled = NUM_THOUGHTS + min(len(tokens), max(room, 0))
        answer = {
            **{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": MODEL},
            "choices": [choice],
            "usage": {
                "prompt_tokens": num_read,
                "completion_tokens": num_sampled,
                "total_tokens": num_read + num_sampled,
                "prompt_tokens_details": {"cached_tokens": 1, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": NUM_THOUGHTS},
            },
        }
        ChatCompletion.model_validate(answer, strict=True)
        self.departure(prompt, answer)
        return web.json_response(answer)

    def _refusal(self, body: dict[str, Any]) -> web.Response | None:
        for name in body.keys() - _PARAMETERS:
            message = f"Unrecognized request argument supplied: {name}"
            return failure(400, "unknown_parameter", message, name)
        for name in body.keys() & set(self.fixed):
            message = f"Unsupported value: '{name}' does not support {body[name]} with this model."
            return failure(400, "unsupported_value", message, name)
        try:
            _REQUEST.validate_python(body)
        except ValidationError as error:
            return failure(400, "invalid_type", str(error.errors()[0]["msg"]))
        if "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens' is not supported with this model."
            return failure(400, "unsupported_parameter", message, "max_tokens")
        if body["model"] != MODEL:
            return failure(404, "model_not_found", f"The model `{body['model']}` does not exist")
        return None


def failure(
    status: int, code: str, message: str, param: str | None = None, **how: Any
) -> web.Response:
    kind = code if code == "insufficient_quota" else "invalid_request_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return web.json_response({"error": error}, status=status, **how)
