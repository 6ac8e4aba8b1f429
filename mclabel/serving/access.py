"""Who may ask a server, and open the pages of this machine.

Three fences: a random token, without which nothing is served (in the URL once, then in a cookie);
the Host header, which must name this machine, against rebound names; a Content-Security-Policy
under which no script runs that is not a file of this package. Where something can be written, the
Origin header must also be the page's own, so that no other site can write with the cookie.
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
    """An application with its endpoints behind a fence.

    Args:
        routes: the endpoints, which may raise `Refused`.
        token: what clients must know; None lets in who calls this machine by a loopback name.
    """
    app = Starlette(
        routes=list(routes), exception_handlers={Refused: _refusal, HTTPException: _refusal}
    )
    return _Fence(app, token)


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # of the routes
        error = Refused(error.status_code, f"{request.method} {request.url.path[:200]}: not served")
    assert isinstance(error, Refused)
    return json_response(error.body, error.status, error.headers)


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
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        knows = hmac.compare_digest(given.strip().encode("latin-1"), self._token.encode())
        if scheme.lower() == "bearer" and knows:
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
    """Lets in who comes from this machine and knows a token; puts the headers on everything."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, str],
        *,
        command: str,
        posts: Collection[str] = (),
    ) -> None:
        """Fence an application.

        Args:
            app: whose requests have `request.state.person`.
            tokens: name of the visitor, by what the visitor must know.
            command: that serves, for messages.
            posts: paths that take POST; all others are only looked at.
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
            return self._said("this address is not served", 421)
        writes = request.method == "POST" and request.url.path in self._posts
        if request.method not in ("GET", "HEAD") and not writes:
            return self._said("only looked at", 405)
        cookie = f"mclabel_{(request.scope.get('server') or ('', 0))[1]}"
        given = request.query_params.get("token", "")
        if self._visitor(given) is not None:
            response = RedirectResponse(request.url.remove_query_params("token"), 303)
            response.set_cookie(cookie, given, httponly=True, samesite="lax")
            return response
        visitor = self._visitor(request.cookies.get(cookie, ""))
        if visitor is None:
            return self._said("open the address that the command printed, with its token", 403)
        keep(request.scope)
        if "upgrade" in request.headers:
            return self._said(NO_UPGRADE, 400)
        if writes and request.headers.get("origin") != f"http://{request.headers['host']}":
            return self._said("only its own page can write", 403)
        request.state.person = visitor
        return None

    def _said(self, why: str, status: int) -> Response:
        return PlainTextResponse(f"{self._command}: {why}", status)

    def _visitor(self, given: str) -> str | None:
        """Whose token this is; every token is compared, in a time that tells nothing."""
        found = None
        for token, name in self._tokens.items():
            if hmac.compare_digest(given.encode(), token.encode()):
                found = name
        return found


def page_address(listening: socket.socket) -> str:
    """The address of pages that are served on a socket."""
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
    """A socket that listens to this machine alone.

    Args:
        port: None takes `default`, or any free one if that is in use.
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
    # the protocol is named, for only then does asyncio send small answers at once
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
