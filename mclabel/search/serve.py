"""The search server, which answers requests with searched solutions until it is interrupted.

The server sends no part of a solution before the search has ended. Until then, a streaming client
receives comments, so that neither the client nor a proxy closes the connection. If a client
disconnects, its search ends.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mclabel.core.components import load_component_class
from mclabel.core.errors import ConfigError
from mclabel.core.stop import end_process_within
from mclabel.labeling.policy import prepare_policy
from mclabel.search.base import SearchMethod
from mclabel.search.config import ServeSearchConfig
from mclabel.search.scorers import StepScorer, make_scorer
from mclabel.search.searcher import RequestReader, Searcher, SearchRequest, SearchResponse
from mclabel.serving.access import make_api_app
from mclabel.serving.requests import (
    Refused,
    RequestLimits,
    encode_json,
    make_json_response,
    read_body,
    respond_when_done,
    wait_for_disconnect,
)
from mclabel.serving.run import GRACE_S, OnReady, ServerAddress, open_listening_socket, run_server


def serve_search(
    config: ServeSearchConfig,
    *,
    place: ServerAddress,
    name: str | None = None,
    limits: RequestLimits,
    on_ready: OnReady,
) -> None:
    """Serve searched solutions until interrupted.

    Args:
        config: configuration of policy, method and scorer.
        place: address and token of the server.
        name: name of the model for clients; None uses `policy.model`.
        limits: maximum numbers of requests that are processed and that wait.
        on_ready: function that is called once the server listens. Its arguments are the server's
            base URL and a function that ends the server from any thread.

    Raises:
        ConfigError: the port is in use, a host that other machines can reach has no token, or the
            scorer is `exact`, which needs problems whose wrong steps are known.
        EngineError: the engine cannot be loaded, or has died.
    """
    load_component_class(config.search, SearchMethod)
    if load_component_class(config.scorer, StepScorer).is_truth:
        raise ConfigError(
            f"scorer.kind={config.scorer.kind}: works only for problems with known truth, "
            "which requests do not contain. Set scorer=prm with scorer.prm=FOLDER"
        )
    with end_process_within(GRACE_S), open_listening_socket(place) as listening:
        policy = prepare_policy(config.policy)
        config = config.model_copy(update={"policy": policy.settings})
        policy.engine.check_model()
        make_scorer(config.scorer).check_ready()
        reader = RequestReader(config, name=name or config.policy.model)
        make = policy.engine_factory(config.seed)
        try:
            asyncio.run(
                _serve_until_stopped(
                    reader,
                    lambda: Searcher(make(), config, name=reader.name, limits=limits),
                    listening,
                    place,
                    on_ready,
                )
            )
        except KeyboardInterrupt:
            return


async def _serve_until_stopped(
    reader: RequestReader,
    make_searcher: Callable[[], Searcher],
    listening: socket.socket,
    place: ServerAddress,
    on_ready: OnReady,
) -> None:
    """Load the models, and serve until a signal, a call of `stop`, or a crash of the engine."""
    searcher = make_searcher()
    app = make_app(reader, searcher, token=place.token)
    try:
        await searcher.start()
        await run_server(
            app, searcher.requests, listening, place, lambda url, stop: on_ready(f"{url}/v1", stop)
        )
    finally:
        await searcher.close()
    if searcher.requests.died is not None:
        raise searcher.requests.died


MAX_BODY = 2**20
"""Maximum bytes of a request's body."""
KEEP_ALIVE_S = 5.0
"""Seconds between two comments to a streaming client."""


def make_app(reader: RequestReader, searcher: Searcher, *, token: str | None) -> ASGIApp:
    """Return the server as an ASGI application.

    Args:
        reader: parser of requests.
        searcher: service that runs the searches; it must be started.
        token: token that clients must send; None serves only requests to a loopback name.
    """
    served = _SearchEndpoints(reader, searcher)
    completions = Route("/v1/chat/completions", served.completions, methods=["POST"])
    return make_api_app([Route("/v1/models", served.models), completions], token)


class _SearchEndpoints:
    """Endpoints of the server."""

    def __init__(self, reader: RequestReader, searcher: Searcher) -> None:
        self._reader, self._searcher = reader, searcher
        self._created = int(time.time())

    async def models(self, request: Request) -> Response:
        """Return the list of models, which has one entry."""
        model = {"id": self._reader.name, "object": "model", "created": self._created}
        return make_json_response({"object": "list", "data": [{**model, "owned_by": "mclabel"}]})

    async def completions(self, request: Request) -> Response:
        """Return the searched solution of a problem."""
        ask = self._reader.read(await read_body(request, max_bytes=MAX_BODY))
        search = self._searcher.start_search(ask)
        if ask.is_streamed:
            return _EventStreamResponse(search, ask)
        return await respond_when_done(
            search, request, lambda response: make_json_response(response.to_completion_object())
        )


class _EventStreamResponse(Response):
    """Server-sent events of a response, with comments until the response is complete."""

    def __init__(self, search: asyncio.Task[SearchResponse], request: SearchRequest) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._search, self._request = search, request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.create_task(wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            async for event in self._generate_events(disconnected):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            if not disconnected.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            return  # the client has disconnected
        finally:
            self._search.cancel()
            disconnected.cancel()

    async def _generate_events(self, disconnected: asyncio.Task[None]) -> AsyncIterator[bytes]:
        ends, first = {self._search, disconnected}, asyncio.FIRST_COMPLETED
        while not (await asyncio.wait(ends, timeout=KEEP_ALIVE_S, return_when=first))[0]:
            yield b": searching\n\n"
        if not self._search.done():
            return
        try:
            response = self._search.result()
        except Refused as refused:
            yield _format_event(encode_json(refused.body))
            return
        for chunk in response.iter_chunk_objects(include_usage=self._request.include_usage):
            yield _format_event(encode_json(chunk))
        yield _format_event(b"[DONE]")


def _format_event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"
