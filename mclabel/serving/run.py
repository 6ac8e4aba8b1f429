"""Runs the HTTP server of an application: handles its address, its connections and its shutdown.

Clients without the token cannot use up all connections. The header of a request must arrive within
`HEADER_TIMEOUT_S` seconds. Connections over which no authorised request has arrived may be at most
half of all connections.
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
from mclabel.serving.requests import SHUTDOWN, Refused, RequestQueue, encode_json

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp


CHECK_INTERVAL_S = 0.1
"""Seconds between two checks whether the server must end."""
RESPONSE_GRACE_S = 2
"""Maximum seconds for running responses to end at shutdown."""
GRACE_S = 4.0
"""Seconds between a signal to end and the forced end of the server."""

OnReady = Callable[[str, Callable[[], None]], None]
"""Function that is called once the server listens. Its arguments are the server's base URL and a
function that ends the server from any thread."""


def make_server(app: ASGIApp, *, max_connections: int = 1_024) -> uvicorn.Server:
    """Return an HTTP server (without TLS) that reserves connections for authorised clients.

    Args:
        app: application with its access control.
        max_connections: maximum number of simultaneous connections.
    """
    import uvicorn

    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=cast(Any, ConnectionLimiter(max_connections).make_connection),
            ws="none",
            log_level="critical",
            access_log=False,
            lifespan="off",
            workers=1,
            timeout_graceful_shutdown=RESPONSE_GRACE_S,
        )
    )


async def run_server(
    app: ASGIApp,
    requests: RequestQueue,
    listening: socket.socket,
    address: ServerAddress,
    on_ready: OnReady,
) -> None:
    """Serve until a signal, a call of the function passed to `on_ready`, or an engine's death.

    Args:
        app: application with its access control.
        requests: requests of the server, which are ended at shutdown. If `requests.died` is set,
            the server ends.
        listening: socket that listens at the address.
        address: address of the server.
        on_ready: function that is called once the server listens, with the base URL and a function
            that ends the server.
    """
    server = make_server(app)

    def stop() -> None:
        server.should_exit = True

    host = f"[{address.host}]" if ":" in address.host else address.host
    watcher = asyncio.create_task(_end_with_engine_or_server(server, requests))
    on_ready(f"http://{host}:{listening.getsockname()[1]}", stop)
    await server.serve(sockets=[listening])
    await watcher


async def _end_with_engine_or_server(server: uvicorn.Server, requests: RequestQueue) -> None:
    """End the server once its engine has died, and end the requests once the server ends."""
    while not server.should_exit:
        await asyncio.sleep(CHECK_INTERVAL_S)
        server.should_exit = server.should_exit or requests.died is not None
    requests.end(SHUTDOWN)


HEADER_TIMEOUT_S = 10.0
"""Maximum seconds until the header of a request is complete."""
_MARK_AUTHORISED_KEY = "mark_authorised"
"""Key in the `state` of an ASGI scope. Its value is a function that marks the connection as
authorised."""


def mark_connection_authorised(scope: Scope) -> None:
    """Mark the connection of an authorised request, so that new connections do not close it.

    Args:
        scope: ASGI scope of the request.
    """
    if (mark_authorised := scope.get("state", {}).get(_MARK_AUTHORISED_KEY)) is not None:
        mark_authorised()


class ConnectionLimiter:
    """Registry of a server's connections, which limits the number of unauthorised ones."""

    def __init__(self, max_connections: int) -> None:
        """Start without connections.

        Args:
            max_connections: maximum number of simultaneous connections.
        """
        self._max_connections = max_connections
        self._unauthorised: dict[Connection, None] = {}
        self._authorised: set[Connection] = set()

    def make_connection(self, **arguments: Any) -> Connection:
        """Return the protocol object of a new connection; uvicorn calls this method."""
        return Connection(self, **arguments)

    def add(self, connection: Connection) -> None:
        """Add a new connection. End the oldest unauthorised connections if there are too many."""
        self._unauthorised[connection] = None
        max_unauthorised = min(
            self._max_connections // 2, self._max_connections - len(self._authorised)
        )
        while len(self._unauthorised) > max_unauthorised:
            oldest = next(iter(self._unauthorised))
            del self._unauthorised[oldest]
            oldest.end(
                503,
                "there are too many connections. Send a complete request with the server's token",
            )

    def mark_authorised(self, connection: Connection) -> None:
        """Mark a connection over which an authorised request has arrived."""
        if connection in self._unauthorised:
            del self._unauthorised[connection]
            self._authorised.add(connection)

    def remove(self, connection: Connection) -> None:
        """Remove a connection that has ended."""
        self._unauthorised.pop(connection, None)
        self._authorised.discard(connection)


class Connection(H11Protocol):
    """Protocol object of one connection, with a time limit for the header of each request."""

    def __init__(self, limiter: ConnectionLimiter, **arguments: Any) -> None:
        """Make the protocol object of a new connection.

        Args:
            limiter: registry of the server's connections.
            arguments: arguments of uvicorn's `H11Protocol`.
        """
        super().__init__(**arguments)
        self._limiter = limiter
        self._header_timer: asyncio.TimerHandle | None = None
        self.app_state = {
            **self.app_state,
            _MARK_AUTHORISED_KEY: partial(limiter.mark_authorised, self),
        }

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit when the client has connected."""
        super().connection_made(transport)
        self._start_header_timer()
        self._limiter.add(self)

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the time limit ends once the header of a request is complete."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._start_header_timer()
        else:
            self._cancel_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection when the client has disconnected."""
        self._cancel_header_timer()
        self._limiter.remove(self)
        super().connection_lost(exc)

    def end(self, status: int, reason: str) -> None:
        """End the connection. Send an error response unless another response is being sent.

        Args:
            status: HTTP status of the error.
            reason: message to the client.
        """
        self._cancel_header_timer()
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            body = encode_json(Refused(status, reason).body)
            head = f"HTTP/1.1 {status} Refused\r\ncontent-type: application/json\r\n"
            head += f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            self.transport.write(head.encode() + body)
            self.transport.close()
        else:
            self.transport.abort()

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(
                HEADER_TIMEOUT_S,
                self.end,
                408,
                f"the header of the request did not arrive within {HEADER_TIMEOUT_S:.0f} s",
            )

    def _cancel_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


HOST = "127.0.0.1"
"""Default address of all servers, which only this machine can reach."""
_HOST_HEADER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::[0-9]{1,5})?")
"""Pattern of a Host header: a name or an address, and optionally a port."""


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """Address of a server, and the token that its clients must send."""

    host: str = HOST
    """Host name or IP address to listen on."""
    port: int
    """Port number; 0 uses any free port."""
    token: str | None = None
    """Token that clients must send. None requires no token, so `host` must be a loopback name."""


def read_token(variable: str | None) -> str | None:
    """Return the token in an environment variable; None if `variable` is None.

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


def parse_host_name(header: str) -> str:
    """Return the name in a Host header without its port; empty if the header is invalid."""
    match = _HOST_HEADER.fullmatch(header)
    return "" if match is None else match[1]


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback name or address."""
    name = host.strip("[]")
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def open_listening_socket(address: ServerAddress) -> socket.socket:
    """Return a socket that listens at an address.

    Raises:
        ConfigError: the address is not available, or other machines can reach it without a token.
    """
    if address.token is None and not is_loopback(address.host):
        raise ConfigError(
            f"--host {address.host}: other machines can reach this address, so clients need a "
            "token. Put a token into an environment variable and pass the variable's name as "
            "--token-env, or leave out --host"
        )
    try:
        addresses = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, socket_address = addresses[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"--host {address.host}: this is not an address of this machine ({error}). Pass an "
            f"address of this machine, such as {HOST}"
        ) from error
    try:
        return bind_socket(family, kind, protocol, socket_address)
    except OSError as error:
        raise ConfigError(
            f"--host {address.host} --port {address.port}: the server cannot listen on this "
            f"address ({error.strerror}). Pass another port, or an address of this machine"
        ) from error


def bind_socket(family: int, kind: int, protocol: int, address: Any) -> socket.socket:
    """Return a socket that listens at an address.

    The protocol must be explicit. Otherwise asyncio does not disable Nagle's algorithm, which
    delays small responses.
    """
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)
    except OSError:
        listening.close()
        raise
    return listening
