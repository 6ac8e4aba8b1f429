"""The HTTP server of an application: its address, its connections and its shutdown.

Clients without the token cannot exhaust the connections: a request's header must arrive within
`HEADER_S` seconds, and connections without a valid request take at most half of all slots.
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
"""Seconds between two checks whether the server must end."""
END_S = 2
"""Maximum seconds for running responses to end at shutdown."""
GRACE_S = 4.0
"""Seconds after a signal at which the server is ended by force."""

Ready = Callable[[str, Callable[[], None]], None]
"""Callback once the server listens, with its base URL and a function that ends the server from any
thread."""


def make_server(app: ASGIApp, *, places: int = 1_024) -> uvicorn.Server:
    """Return a plain HTTP server that reserves connections for authorised clients.

    Args:
        app: application behind its access control.
        places: maximum number of simultaneous connections.
    """
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast(Any, ConnectionLimiter(places).protocol),
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
    """Serve until a signal, a call of the function passed to `on_ready`, or `asked.died`.

    Args:
        app: application with all its endpoints.
        asked: requests of the server, which end with it.
        listening: socket that listens at the address.
        place: address of the server.
        on_ready: called when the server listens.
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
    """End the server when its engine has died, and the requests when the server ends."""
    while not server.should_exit:
        await asyncio.sleep(LOOK_S)
        server.should_exit = server.should_exit or asked.died is not None
    asked.end("the server ends")


HEADER_S = 10.0
"""Maximum seconds until the header of a request is complete."""
_STATE = "mark_authorised"
"""Key in the state of an ASGI scope of the function that marks its connection as authorised."""


def keep(scope: Scope) -> None:
    """Mark the connection of an authorised request, so that no new connection replaces it."""
    if (mark_authorised := scope.get("state", {}).get(_STATE)) is not None:
        mark_authorised()


class ConnectionLimiter:
    """All connections of a server, with a limit on unauthorised ones."""

    def __init__(self, places: int) -> None:
        """Start without connections.

        Args:
            places: maximum number of simultaneous connections.
        """
        self._places = places
        self._unauthorised: dict[Connection, None] = {}
        self._authorised: set[Connection] = set()

    def protocol(self, **arguments: Any) -> Connection:
        """Return the protocol object of a new connection; called by uvicorn."""
        return Connection(self, **arguments)

    def add(self, connection: Connection) -> None:
        """Add a new connection, and end the oldest unauthorised ones if there are too many."""
        self._unauthorised[connection] = None
        room = min(self._places // 2, self._places - len(self._authorised))
        while len(self._unauthorised) > room:
            oldest = next(iter(self._unauthorised))
            del self._unauthorised[oldest]
            oldest.end(503, "too many connections: show the server's token with a whole request")

    def mark_authorised(self, connection: Connection) -> None:
        """Mark a connection over which a valid request has arrived."""
        if connection in self._unauthorised:
            del self._unauthorised[connection]
            self._authorised.add(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._unauthorised.pop(connection, None)
        self._authorised.discard(connection)


class Connection(H11Protocol):
    """One connection, with a time limit for every header."""

    def __init__(self, limiter: ConnectionLimiter, **arguments: Any) -> None:
        """Handle a connection.

        Args:
            limiter: all connections of the server.
            arguments: arguments of uvicorn.
        """
        super().__init__(**arguments)
        self._limiter = limiter
        self._late: asyncio.TimerHandle | None = None
        self.app_state = {**self.app_state, _STATE: partial(limiter.mark_authorised, self)}

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit when the client has connected."""
        super().connection_made(transport)
        self._wait_for_header()
        self._limiter.add(self)

    def data_received(self, data: bytes) -> None:
        """Process a part of a request."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_header()
        else:
            self._stop_waiting()

    def connection_lost(self, exc: Exception | None) -> None:
        """Clean up when the client has disconnected."""
        self._stop_waiting()
        self._limiter.remove(self)
        super().connection_lost(exc)

    def end(self, status: int, why: str) -> None:
        """End the connection, with an error response unless another response is being sent."""
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
    """Address of a server, and the token of its clients."""

    host: str = HOST
    port: int
    """Port number; 0 takes any free port."""
    token: str | None = None
    """Token that clients must send; None serves only this machine."""


def token_of(variable: str | None) -> str | None:
    """Return the token in an environment variable; None if no variable is named.

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
    """Return the name in a Host header without its port; empty if the header is invalid."""
    match = _HOST.fullmatch(header)
    return "" if match is None else match[1]


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback name or address."""
    name = host.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def listen(place: Place) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        ConfigError: the address is not available, or is reachable by others and has no token.
    """
    if place.token is None and not is_loopback(place.host):
        raise ConfigError(
            f"--host {place.host}: others can reach it, so clients need a token. Put one into an "
            "environment variable and pass its name as --token-env, or leave --host out"
        )
    try:
        addresses = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = addresses[0]
        # asyncio disables Nagle's algorithm only if the protocol is named; else small answers wait
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
