"""Random requests to our servers: numbers at their bounds and beside them, and other types."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

NUM_REQUESTS = 300
SLOW_S = 20.0
"""Seconds after which a server counts as hanging: honest answers take milliseconds."""
OTHERS: Sequence[Any] = (
    *(None, True, False, "", "x", "1", [], [[]], {}, {"kind": "beam"}, [None], [1], -1, 0, 1.5),
    *(1e308, -1e308, 2**63 - 1, 2**63, -(2**63), 10**12, 10**30, "\ud800", "x" * 5_000),
)


def near(*bounds: int) -> list[Any]:
    """Numbers at bounds, just below them and just above."""
    return [bound + by for bound in bounds for by in (-1, 0, 1)]


def ask_at_random(
    port: int, path: str, simple: str, make: Callable[[random.Random], Any], *, seed: int = 0
) -> dict[int, int]:
    """Send random requests, each of which must be answered or begun soon, as a simple one is.

    A request that has not been answered soon is given up: its search or scoring may go on for as
    long as it likes, as long as the server answers others.

    Args:
        port: of the server.
        path: of the random requests.
        simple: path that another client asks meanwhile.
        make: a body, from random numbers.
        seed: of the random numbers.

    Returns:
        How often each status was answered; 0 stands for requests that were begun.
    """
    draw, found = random.Random(seed), dict[int, int]()
    for _ in range(NUM_REQUESTS):
        body = json.dumps(make(draw)).encode()
        asked = _posted(port, path, body)
        began = time.monotonic()
        assert _got(port, simple) == 200, body[:500]
        assert time.monotonic() - began < SLOW_S, body[:500]
        asked.sock.settimeout(0.05)
        try:
            status = asked.getresponse().status
        except TimeoutError:
            status = 0
        asked.close()
        found[status] = found.get(status, 0) + 1
    return found


def _posted(port: int, path: str, body: bytes) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW_S)
    connection.request("POST", path, body, {"content-type": "application/json"})
    return connection


def _got(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW_S)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status
