"""Access control of the HTTP servers and of the pages that this machine serves.

API servers require a bearer token, or a loopback Host header without one. Pages require a token
(once in the URL, then in a cookie), a loopback Host header against DNS rebinding, and the page's
own Origin header for writes. A Content-Security-Policy allows only this package's scripts.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Collection, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mclabel.core.errors import ConfigError
from mclabel.core.stop import ends_within
from mclabel.serving.requests import Refused, json_response
from mclabel.serving.run import GRACE_S, HOST, host_name, is_loopback, keep, make_server

NO_UPGRADE = "this server speaks plain HTTP: no WebSocket, and no other protocol to upgrade to"


def fenced(routes: Sequence[Route], token: str | None) -> ASGIApp:
    """Return an application whose endpoints are behind access control.

    Args:
        routes: the endpoints, which may raise `Refused`.
        token: token that clients must send; None serves only requests to a loopback name.
    """
    app = Starlette(
        routes=list(routes), exception_handlers={Refused: _refusal, HTTPException: _refusal}
    )
    return _Fence(app, token)


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # raised by the routing
        error = Refused(error.status_code, f"{request.method} {request.url.path[:200]}: not served")
    assert isinstance(error, Refused)
    return json_response(error.body, error.status, error.headers)


class _Fence:
    """Access control by token, or without one by a loopback name in the Host header.

    The loopback name keeps out web pages that reach this machine by DNS rebinding.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        answering = self._app
        refused = self._refused(request)
        if refused is None:
            keep(scope)
            if "upgrade" in request.headers:
                refused = Refused(400, NO_UPGRADE)
        if refused is not None:
            answering = await _refusal(request, refused)
        await answering(scope, receive, send)

    def _refused(self, request: Request) -> Refused | None:
        if self._token is None:
            name = host_name(request.headers.get("host", ""))
            return None if is_loopback(name) else Refused(421, "this address is not served")
        scheme, _, sent_token = request.headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(sent_token.strip().encode("latin-1"), self._token.encode())
        if scheme.lower() == "bearer" and matches:
            return None
        headers = {"www-authenticate": "Bearer"}
        return Refused(401, "the key is wrong: send the server's token as the key", headers=headers)


MAX_THREADS = 4
HOSTS = ("127.0.0.1", "localhost", "[::1]")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "font-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}


class PageFence:
    """Access control of pages by loopback name and token, which also adds the security headers."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, str],
        *,
        command: str,
        posts: Collection[str] = (),
    ) -> None:
        """Wrap an application.

        Args:
            app: application that reads `request.state.person`.
            tokens: names of visitors by their tokens.
            command: command that serves the pages, for messages.
            posts: paths that accept POST; all others accept only GET and HEAD.
        """
        self._app, self._tokens = app, dict(tokens)
        self._command, self._posts = command, frozenset(posts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        request = Request(scope)
        await (self._refusal(request) or self._app)(scope, receive, guarded)

    def _refusal(self, request: Request) -> Response | None:
        if host_name(request.headers.get("host", "")) not in HOSTS:
            return self._text_response("this address is not served", 421)
        writes = request.method == "POST" and request.url.path in self._posts
        if request.method not in ("GET", "HEAD") and not writes:
            return self._text_response("only looked at", 405)
        cookie = f"mclabel_{(request.scope.get('server') or ('', 0))[1]}"
        url_token = request.query_params.get("token", "")
        if self._visitor(url_token) is not None:
            response = RedirectResponse(request.url.remove_query_params("token"), 303)
            response.set_cookie(cookie, url_token, httponly=True, samesite="lax")
            return response
        visitor = self._visitor(request.cookies.get(cookie, ""))
        if visitor is None:
            return self._text_response(
                "open the address that the command printed, with its token", 403
            )
        keep(request.scope)
        if "upgrade" in request.headers:
            return self._text_response(NO_UPGRADE, 400)
        if writes and request.headers.get("origin") != f"http://{request.headers['host']}":
            return self._text_response("only its own page can write", 403)
        request.state.person = visitor
        return None

    def _text_response(self, reason: str, status: int) -> Response:
        return PlainTextResponse(f"{self._command}: {reason}", status)

    def _visitor(self, sent_token: str) -> str | None:
        """Return the visitor with a token; all tokens are compared in constant time."""
        visitor = None
        for token, name in self._tokens.items():
            if hmac.compare_digest(sent_token.encode(), token.encode()):
                visitor = name
        return visitor


def page_address(listening: socket.socket) -> str:
    """Return the URL of pages that are served on a socket."""
    return f"http://{HOST}:{listening.getsockname()[1]}"


def serve_page(app: ASGIApp, listening: socket.socket) -> None:
    """Serve pages until interrupted."""
    import anyio
    import anyio.to_thread

    server = make_server(app)

    async def main() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_THREADS
        await server.serve(sockets=[listening])

    with ends_within(GRACE_S):
        try:
            anyio.run(main)
        except KeyboardInterrupt:
            return


def listen_here(port: int | None, default: int) -> socket.socket:
    """Return a socket that listens only to this machine.

    Args:
        port: port number; None takes `default`, or any free port if that is in use.
        default: the command's own port.

    Raises:
        ConfigError: the port is in use.
    """
    try:
        return _bound(default if port is None else port)
    except OSError as error:
        if port is None:
            return _bound(0)
        raise ConfigError(
            f"--port {port}: cannot be listened on ({error.strerror}). Give another, or none for a "
            "free one"
        ) from error


def _bound(port: int) -> socket.socket:
    # asyncio disables Nagle's algorithm only if the protocol is named; else small answers wait
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
