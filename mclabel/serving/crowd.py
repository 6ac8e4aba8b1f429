"""Connections to a server: how long a header may take, and whom they are kept for.

Whoever connects may say nothing, or half a header, and keep the place. So a header has `HEADER_S`
seconds, and connections that no valid request has come over yet hold at most half of all places:
one too many ends the oldest of them. Those of clients that know the token stay.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from starlette.types import Scope
from uvicorn.protocols.http.h11_impl import H11Protocol

from mclabel.serving.bodies import Refused, to_json

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
