"""An OpenAI-compatible server with faults on demand.

The tests in tests/vllm use a real `vllm serve`. It cannot be made to limit rates, to lose
connections or to lack an option at will.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from aiohttp import web

from mclabel.domains.arith import bundled_model
from mclabel.engines.chat import PromptParts
from mclabel.engines.text import PolicyText

ANSWER = "1 + 1 = 2.\nThe answer is \\boxed{2}."

Fault = tuple[int, dict[str, str]] | str | bytes
"""Status and headers, `drop` for a closed connection, a finish reason, or a body."""


@cache
def policy_text() -> PolicyText:
    """Load the tokenizer of the model that the server names, once."""
    return PolicyText.load(str(bundled_model("policy")), PromptParts())


class Server:
    """A server with its own thread and port."""

    def __init__(
        self,
        *,
        names: Sequence[str] = ("policy",),
        key: str | None = None,
        takes_ids: bool = True,
        returns_ids: bool = True,
        chat: bool = False,
        continues: bool = True,
        extra_tokens: int = 0,
        answer: str | Callable[[str], str | bytes] = ANSWER,
        max_model_len: int = 400,
        delay_s: float = 0.0,
        is_html: bool = False,
    ) -> None:
        self.names, self.key, self.takes_ids, self.returns_ids = names, key, takes_ids, returns_ids
        self.chat, self.continues, self.extra_tokens = chat, continues, extra_tokens
        self.answer, self.delay_s, self.is_html = answer, delay_s, is_html
        self.max_model_len = max_model_len
        self.faults: deque[Fault] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.num_live = self.most_live = 0

    def __enter__(self) -> Server:
        self._loop = asyncio.new_event_loop()
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(20)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(20)

    def _run_loop(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application(client_max_size=2**26)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._completions)
        self.add_routes(app)
        runner = web.AppRunner(app)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.port = runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    def add_routes(self, app: web.Application) -> None:
        """Add routes; subclasses override this method."""

    async def _models(self, request: web.Request) -> web.Response:
        if self.is_html:
            return web.Response(text="<html>", content_type="text/html")
        return self._unauthorised(request) or web.json_response(
            {"data": [{"id": name, "max_model_len": self.max_model_len} for name in self.names]}
        )

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        if (refusal := self._unauthorised(request)) is not None:
            return refusal
        body = json.loads(await request.read())
        is_chat = request.path.endswith("/chat/completions")
        if is_chat != self.chat:
            return web.json_response({"error": "no such endpoint"}, status=404)
        if not is_chat and not self.takes_ids:
            return web.json_response({"error": "prompt must be a string"}, status=400)
        self.bodies.append(body)
        self.num_live += 1
        self.most_live = max(self.most_live, self.num_live)
        try:
            await asyncio.sleep(self.delay_s)
            return self._reply(request, body, is_chat)
        finally:
            self.num_live -= 1

    def _reply(self, request: web.Request, body: dict[str, Any], is_chat: bool) -> web.Response:
        failure = None
        if self.faults:
            fault = self.faults.popleft()
            if fault == "drop":
                assert request.transport is not None
                request.transport.abort()
                return web.Response()
            if isinstance(fault, bytes):
                return web.Response(body=fault, content_type="application/json")
            if isinstance(fault, tuple):
                return web.json_response({"error": "busy"}, status=fault[0], headers=fault[1])
            failure = fault
        prompt = [*self._read(body, is_chat), *[0] * self.extra_tokens]
        answered = (
            self.answer
            if isinstance(self.answer, str)
            else self.answer(policy_text().decode(prompt))
        )
        if isinstance(answered, bytes):
            return web.Response(body=answered, content_type="application/json")
        ids = list(policy_text().encode(answered))[: body["max_tokens"]]
        finish_reason = "length" if len(ids) == body["max_tokens"] else "stop"
        if finish_reason == "stop":
            ids += sorted(policy_text().end_ids())
        text = policy_text().decode(ids[:-1] if finish_reason == "stop" else ids)
        choice = {"index": 0, "finish_reason": failure or finish_reason}
        choice |= {"message": {"content": text}} if is_chat else {"text": text}
        answer: dict[str, Any] = {"choices": [choice], "usage": {"prompt_tokens": len(prompt)}}
        if self.returns_ids:
            choice["token_ids"] = ids
            answer["prompt_token_ids"] = prompt
        return web.json_response(answer)

    def _read(self, body: dict[str, Any], is_chat: bool) -> list[int]:
        if not is_chat:
            return list(body["prompt"])
        messages = body["messages"]
        ids = list(policy_text().prompt_ids(messages[0]["content"]))
        if len(messages) == 2:
            ids += policy_text().encode(messages[1]["content"])
            if not self.continues:
                ids += sorted(policy_text().end_ids())
        return ids

    def _unauthorised(self, request: web.Request) -> web.Response | None:
        sent_key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.key is None or sent_key == self.key:
            return None
        return web.json_response({"error": f"Incorrect API key: {sent_key}"}, status=401)
