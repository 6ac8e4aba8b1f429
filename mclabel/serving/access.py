"""Access control of the API servers and of the web pages that this machine serves.

An API server requires a bearer token. If it has no token, it accepts only requests whose Host
header is a loopback name. A web page requires a token, first in the URL and then in a cookie. It
also requires a loopback name in the Host header, against DNS rebinding, and its own address in the
Origin header of writes. A Content-Security-Policy allows only this package's scripts.
"""

from __future__ import annotations

import hmac
import socket
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mclabel.core.errors import ConfigError
from mclabel.core.stop import end_process_within
from mclabel.serving.requests import Refused, make_json_response
from mclabel.serving.run import (
    GRACE_S,
    HOST,
    bind_socket,
    is_loopback,
    make_server,
    mark_connection_authorised,
    parse_host_name,
)

NO_UPGRADE = (
    "this server supports only plain HTTP. Send the request without an Upgrade header; WebSocket "
    "is not supported"
)
"""Message to clients that ask for another protocol."""
NOT_LOOPBACK = "this host name is not served. Use 127.0.0.1 or localhost as the host"
"""Message to clients whose Host header is not a loopback name."""


def make_api_app(routes: Sequence[Route], token: str | None) -> ASGIApp:
    """Return an API application with access control.

    Args:
        routes: endpoints of the application, which may raise `Refused`.
        token: token that clients must send; None accepts only requests whose Host header is a
            loopback name.
    """
    app = Starlette(
        routes=list(routes),
        exception_handlers={Refused: _make_refusal_response, HTTPException: _make_refusal_response},
    )
    return _ApiAccessControl(app, token)


async def _make_refusal_response(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # no route matches the request
        error = Refused(
            error.status_code,
            f"{request.method} {request.url.path[:200]}: the server has no such endpoint",
        )
    assert isinstance(error, Refused)
    return make_json_response(error.body, error.status, error.headers)


class _ApiAccessControl:
    """Access control of an API server: by the token, or by the Host header if there is no token.

    Without a token, the Host header must be a loopback name. So requests of web pages that reach
    this machine by DNS rebinding are refused.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope)
        responder = self._app
        refusal = self._refuse_request(request)
        if refusal is None:
            mark_connection_authorised(scope)
            if "upgrade" in request.headers:
                refusal = Refused(400, NO_UPGRADE)
        if refusal is not None:
            responder = await _make_refusal_response(request, refusal)
        await responder(scope, receive, send)

    def _refuse_request(self, request: Request) -> Refused | None:
        if self._token is None:
            name = parse_host_name(request.headers.get("host", ""))
            return None if is_loopback(name) else Refused(421, NOT_LOOPBACK)
        scheme, _, sent_token = request.headers.get("authorization", "").partition(" ")
        matches = hmac.compare_digest(sent_token.strip().encode("latin-1"), self._token.encode())
        if scheme.lower() == "bearer" and matches:
            return None
        return Refused(
            401,
            "the API key is missing or wrong. Send the server's token as the API key",
            headers={"www-authenticate": "Bearer"},
        )


MAX_THREADS = 4
"""Maximum number of threads that answer requests for pages."""
PAGE_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names in the Host header under which pages are served."""
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "font-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
}
"""Security headers of all responses to requests for pages."""


class PageAccessControl:
    """Access control of web pages by Host header and token. It also adds the security headers."""

    def __init__(
        self,
        app: ASGIApp,
        tokens: Mapping[str, str],
        *,
        command: str,
        post_paths: Collection[str] = (),
    ) -> None:
        """Wrap an application.

        Args:
            app: application that serves the pages. It may read the visitor's name from
                `request.state.person`.
            tokens: maps tokens to the names of visitors.
            command: command that serves the pages, for messages.
            post_paths: paths that accept POST. All other paths accept only GET and HEAD.
        """
        self._app, self._tokens = app, dict(tokens)
        self._command, self._posts = command, frozenset(post_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_security_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                header_pairs = [
                    (name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()
                ]
                message = {**message, "headers": [*message["headers"], *header_pairs]}
            await send(message)

        request = Request(scope)
        await (self._make_refusal_response(request) or self._app)(
            scope, receive, send_with_security_headers
        )

    def _make_refusal_response(self, request: Request) -> Response | None:
        if parse_host_name(request.headers.get("host", "")) not in PAGE_HOSTS:
            return self._make_text_response(NOT_LOOPBACK, 421)
        is_page_write = request.method == "POST" and request.url.path in self._posts
        if request.method not in ("GET", "HEAD") and not is_page_write:
            return self._make_text_response("this address accepts only GET and HEAD requests", 405)
        cookie_name = f"mclabel_{(request.scope.get('server') or ('', 0))[1]}"
        url_token = request.query_params.get("token", "")
        if self._find_visitor(url_token) is not None:
            response = RedirectResponse(request.url.remove_query_params("token"), 303)
            response.set_cookie(cookie_name, url_token, httponly=True, samesite="lax")
            return response
        visitor = self._find_visitor(request.cookies.get(cookie_name, ""))
        if visitor is None:
            return self._make_text_response(
                "the token is missing. Open the address that the command printed, which contains "
                "the token",
                403,
            )
        mark_connection_authorised(request.scope)
        if "upgrade" in request.headers:
            return self._make_text_response(NO_UPGRADE, 400)
        if is_page_write and request.headers.get("origin") != f"http://{request.headers['host']}":
            return self._make_text_response("only the page itself may send POST requests", 403)
        request.state.person = visitor
        return None

    def _make_text_response(self, reason: str, status: int) -> Response:
        return PlainTextResponse(f"{self._command}: {reason}", status)

    def _find_visitor(self, sent_token: str) -> str | None:
        """Return the name of the visitor with a token; None if the token is unknown.

        All tokens are compared, in constant time, so that response times do not disclose a token.
        """
        visitor = None
        for token, name in self._tokens.items():
            if hmac.compare_digest(sent_token.encode(), token.encode()):
                visitor = name
        return visitor


def format_page_address(listening: socket.socket) -> str:
    """Return the base URL of the pages that are served on a socket."""
    return f"http://{HOST}:{listening.getsockname()[1]}"


def serve_page(app: ASGIApp, listening: socket.socket) -> None:
    """Serve web pages until interrupted.

    Args:
        app: application with its access control.
        listening: socket from `listen_on_loopback`.
    """
    import anyio
    import anyio.to_thread

    server = make_server(app)

    async def serve() -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = MAX_THREADS
        await server.serve(sockets=[listening])

    with end_process_within(GRACE_S):
        try:
            anyio.run(serve)
        except KeyboardInterrupt:
            return


def listen_on_loopback(port: int | None, default: int) -> socket.socket:
    """Return a socket that accepts connections only from this machine.

    Args:
        port: port number; None uses `default`, or any free port if `default` is in use.
        default: default port of the command.

    Raises:
        ConfigError: the port is in use.
    """
    # The protocol is passed explicitly. Otherwise asyncio does not disable Nagle's algorithm, which
    # delays small responses.
    bind = partial(bind_socket, socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        return bind((HOST, default if port is None else port))
    except OSError as error:
        if port is None:
            return bind((HOST, 0))
        raise ConfigError(
            f"--port {port}: the server cannot listen on this port ({error.strerror}). Pass "
            "another port, or leave out --port to use a free port"
        ) from error
