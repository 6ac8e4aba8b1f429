"""Who may ask a server: who knows its token, or calls this machine by a name of its own."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from mclabel.serving.bodies import Refused, json_response
from mclabel.serving.run import host_name, is_loopback, keep

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
