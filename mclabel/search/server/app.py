"""The server as an ASGI application: who may ask, how much, and what is sent meanwhile.

Nothing of a solution is sent before its search has ended. A client that streams gets comments
until then, so that neither it nor a proxy takes the connection for dead. One that goes away ends
its search.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mclabel.search.server.answers import Answer, Refused, to_json
from mclabel.search.server.asks import Ask, Reader
from mclabel.search.server.searcher import Searcher

MAX_BODY = 2**20
"""Bytes of a request."""
MAX_DROPPED = 64 * 2**20
"""Bytes of a request that is too large that are read and dropped, so that the client reads why."""
BODY_S = 30.0
"""Seconds in which a client must have sent its request."""
KEEP_ALIVE_S = 5.0
"""Seconds between two comments to a client that streams."""


def make_app(reader: Reader, searcher: Searcher, *, token: str | None) -> ASGIApp:
    """The server as an ASGI application.

    Args:
        reader: of requests.
        searcher: started.
        token: what clients must know; None lets in who calls this machine by a loopback name.
    """
    served = _Served(reader, searcher)
    app = Starlette(
        routes=[
            Route("/v1/models", served.models),
            Route("/v1/chat/completions", served.completions, methods=["POST"]),
        ],
        exception_handlers={Refused: _refusal, HTTPException: _refusal},
    )
    return _Fence(app, token)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, as seen from itself alone."""
    name = host.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class _Served:
    """The endpoints."""

    def __init__(self, reader: Reader, searcher: Searcher) -> None:
        self._reader, self._searcher = reader, searcher
        self._created = int(time.time())

    async def models(self, request: Request) -> Response:
        """The one model that is served."""
        model = {"id": self._reader.name, "object": "model", "created": self._created}
        return _json({"object": "list", "data": [{**model, "owned_by": "mclabel"}]})

    async def completions(self, request: Request) -> Response:
        """The searched solution of a problem."""
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            raise Refused(415, "content-type: must be application/json")
        ask = self._reader.read(await _body(request))
        search = self._searcher.begin(ask)
        if ask.is_streamed:
            return _Stream(search, ask)
        return await _whole(search, request)


async def _whole(search: asyncio.Task[Answer], request: Request) -> Response:
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait({search, gone}, return_when=asyncio.FIRST_COMPLETED)
        if search.done():
            return _json(search.result().completion())
        return Response(status_code=499)  # which nobody reads
    finally:
        search.cancel()
        gone.cancel()


class _Stream(Response):
    """Server-sent events of an answer, with comments until it is there."""

    def __init__(self, search: asyncio.Task[Answer], ask: Ask) -> None:
        super().__init__(media_type="text/event-stream", headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._search, self._ask = search, ask

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = asyncio.create_task(_disconnected(receive))
        try:
            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(head)
            async for event in self._events(gone):
                await send({"type": "http.response.body", "body": event, "more_body": True})
            if not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            return  # the client is gone
        finally:
            self._search.cancel()
            gone.cancel()

    async def _events(self, gone: asyncio.Task[None]) -> AsyncIterator[bytes]:
        ends, first = {self._search, gone}, asyncio.FIRST_COMPLETED
        while not (await asyncio.wait(ends, timeout=KEEP_ALIVE_S, return_when=first))[0]:
            yield b": searching\n\n"
        if not self._search.done():
            return
        try:
            answer = self._search.result()
        except Refused as refused:
            yield _event(to_json(refused.body))
            return
        for chunk in answer.chunks(include_usage=self._ask.include_usage):
            yield _event(to_json(chunk))
        yield _event(b"[DONE]")


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


async def _disconnected(receive: Receive) -> None:
    """Return when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body(request: Request) -> bytes:
    """The body of a request.

    Raises:
        Refused: it is too large, or does not come.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_S):
            async for part in request.stream():
                size += len(part)
                if size > MAX_DROPPED:
                    break
                if size <= MAX_BODY:
                    parts.append(part)
    except TimeoutError:
        raise Refused(408, f"the request did not come within {BODY_S:.0f} s") from None
    except ClientDisconnect:
        raise Refused(400, "the client is gone") from None
    if size > MAX_BODY:
        raise Refused(413, f"the request is larger than {MAX_BODY:,} bytes")
    return b"".join(parts)


def _json(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json(content), status, headers, media_type="application/json")


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the routes
        error = Refused(error.status_code, f"{request.method} {request.url.path[:200]}: not served")
    assert isinstance(error, Refused)
    return _json(error.body, error.status, error.headers)


class _Fence:
    """Lets in who knows the token; without one, who calls this machine by a name of its own.

    The second keeps pages out that a browser shows under a rebound name.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        answered = self._app
        if (refused := self._refused(request)) is not None:
            answered = await _refusal(request, refused)
        await answered(scope, receive, send)

    def _refused(self, request: Request) -> Refused | None:
        if self._token is None:
            host = request.headers.get("host", "")
            name = host[: host.rindex("]") + 1] if "]" in host else host.partition(":")[0]
            return None if is_loopback(name) else Refused(421, "this address is not served")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        knows = hmac.compare_digest(given.strip().encode("latin-1"), self._token.encode())
        if scheme.lower() == "bearer" and knows:
            return None
        headers = {"www-authenticate": "Bearer"}
        return Refused(401, "the key is wrong: send the server's token as the key", headers=headers)
