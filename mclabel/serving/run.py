"""A server from its application: where it listens, how long its connections are kept, and until
when it runs.

Whoever connects may say nothing, or half a header, and keep the place. So a header has `HEADER_S`
seconds, and connections that no valid request has come over yet hold at most half of all places:
one too many ends the oldest of them. Those of clients that know the token stay.
"""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from mclabel.core.errors import ConfigError
from mclabel.serving.requests import Asked, Refused, to_json

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp


LOOK_S = 0.1
"""Seconds between two looks whether the server is to end."""
END_S = 2
"""Seconds that responses under way have to end."""
GRACE_S = 4.0
"""Seconds after which a signal ends a server, whatever it is doing."""

Ready = Callable[[str, Callable[[], None]], None]
"""Called with the base URL once it is served, and with a function that ends the server, from
whatever thread."""


def make_server(app: ASGIApp, *, places: int = 1_024) -> uvicorn.Server:
    """A server that speaks HTTP alone, and keeps its places for those who may ask.

    Args:
        app: with its fence.
        places: connections at a time.
    """
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast(Any, Crowd(places).protocol),
            ws="none",
            log_level="critical",
            access_log=False,
            lifespan="off",
            workers=1,
            timeout_graceful_shutdown=END_S,
        )
    )


async def run_server(
    app: ASGIApp, asked: Asked, listening: socket.socket, place: Place, on_ready: Ready
) -> None:
    """Serve until a signal, a call of what `on_ready` was given, or `asked.died`.

    Args:
        app: with all its endpoints.
        asked: its requests, which end with the server.
        listening: at the place.
        place: where to listen.
        on_ready: called when it listens.
    """
    server = make_server(app)

    def stop() -> None:
        server.should_exit = True

    host = f"[{place.host}]" if ":" in place.host else place.host
    watching = asyncio.create_task(_end_together(server, asked))
    on_ready(f"http://{host}:{listening.getsockname()[1]}", stop)
    await server.serve(sockets=[listening])
    await watching


async def _end_together(server: uvicorn.Server, asked: Asked) -> None:
    """End the server with what it runs on, and the requests with the server."""
    while not server.should_exit:
        await asyncio.sleep(LOOK_S)
        server.should_exit = server.should_exit or asked.died is not None
    asked.end("the server ends")


HEADER_S = 10.0
"""Seconds in which the header of a request must have come."""
_STATE = "crowd"
"""Name, in the state of an ASGI scope, of the function that says that a request is valid."""


def keep(scope: Scope) -> None:
    """Keep the connection of a request whose client may ask: it ends for no other one's sake."""
    if (valid := scope.get("state", {}).get(_STATE)) is not None:
        valid()


class Crowd:
    """All connections of a server."""

    def __init__(self, places: int) -> None:
        """Begin without any.

        Args:
            places: connections at a time.
        """
        self._places = places
        self._strangers: dict[Connection, None] = {}
        self._friends: set[Connection] = set()

    def protocol(self, **named: Any) -> Connection:
        """What handles a new connection; called by uvicorn."""
        return Connection(self, **named)

    def came(self, one: Connection) -> None:
        """A connection has been made. Another one may end for it."""
        self._strangers[one] = None
        room = min(self._places // 2, self._places - len(self._friends))
        while len(self._strangers) > room:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.end(503, "too many connections: show the server's token with a whole request")

    def is_friend(self, one: Connection) -> None:
        """A valid request has come over a connection."""
        if one in self._strangers:
            del self._strangers[one]
            self._friends.add(one)

    def went(self, one: Connection) -> None:
        """A connection has ended."""
        self._strangers.pop(one, None)
        self._friends.discard(one)


class Connection(H11Protocol):
    """One connection, with a limit of time for every header."""

    def __init__(self, crowd: Crowd, **named: Any) -> None:
        """Handle a connection.

        Args:
            crowd: that it is one of.
            named: arguments of uvicorn.
        """
        super().__init__(**named)
        self._crowd = crowd
        self._late: asyncio.TimerHandle | None = None
        self.app_state = {**self.app_state, _STATE: partial(crowd.is_friend, self)}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The client has connected."""
        super().connection_made(transport)
        self._wait_for_header()
        self._crowd.came(self)

    def data_received(self, data: bytes) -> None:
        """A part of a request has come."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop_waiting()
        self._crowd.went(self)
        super().connection_lost(exc)

    def end(self, status: int, why: str) -> None:
        """End the connection with a word, if nothing is being answered on it."""
        self._stop_waiting()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = to_json(Refused(status, why).body)
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
            self.transport.close()
        else:
            self.transport.abort()

    def _wait_for_header(self) -> None:
        if self._late is None:
            why = f"the header of the request did not come within {HEADER_S:.0f} s"
            self._late = self.loop.call_later(HEADER_S, self.end, 408, why)

    def _stop_waiting(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


HOST = "127.0.0.1"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a server listens, and to whom."""

    host: str = HOST
    port: int
    """0 for any free one."""
    token: str | None = None
    """What clients must know; None lets in this machine alone."""


def token_of(variable: str | None) -> str | None:
    """The token in a variable of the environment; None where none is named.

    Raises:
        ConfigError: the variable is not set.
    """
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise ConfigError(
            f"--token-env {variable}: the variable is not set. Export it with the token that "
            "clients must send as their API key"
        )
    return token


def host_name(header: str) -> str:
    """The name in a Host header, without its port; empty if it is none."""
    found = _HOST.fullmatch(header)
    return "" if found is None else found[1]


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, as seen from itself alone."""
    name = host.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def listen(place: Place) -> socket.socket:
    """A socket that listens.

    Raises:
        ConfigError: the place cannot be listened on, or is one that others reach, and has no token.
    """
    if place.token is None and not is_loopback(place.host):
        raise ConfigError(
            f"--host {place.host}: others can reach it, so clients need a token. Put one into an "
            "environment variable and pass its name as --token-env, or leave --host out"
        )
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # the protocol is named, for only then does asyncio send small answers at once
        listening = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"--host {place.host}: is not an address of this machine ({error}). Give one, such as "
            f"{HOST}"
        ) from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise ConfigError(
            f"--host {place.host} --port {place.port}: cannot be listened on ({error.strerror}). "
            "Give another port, or an address of this machine"
        ) from error
    return listening
