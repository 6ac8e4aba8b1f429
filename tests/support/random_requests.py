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
    port: int,
    path: str | None,
    simple: str,
    make: Callable[[random.Random], Any],
    *,
    seed: int = 0,
    cookie: str = "",
) -> dict[int, int]:
    """Send random requests, each of which must be answered or begun soon, as a simple one is.

    A request that has not been answered soon is given up: its search or scoring may go on for as
    long as it likes, as long as the server answers others.

    Args:
        port: of the server.
        path: of the random requests, which have a body; None for some that only look.
        simple: path that another client asks meanwhile.
        make: from random numbers a body, or the path of a request that only looks.
        seed: of the random numbers.
        cookie: of every request.

    Returns:
        How often each status was answered; 0 stands for requests that were begun.
    """
    draw, found = random.Random(seed), dict[int, int]()
    for _ in range(NUM_REQUESTS):
        made = make(draw)
        asked = _asked(port, path, made, cookie)
        began = time.monotonic()
        other = _asked(port, None, simple, cookie)
        assert other.getresponse().status == 200, str(made)[:500]
        other.close()
        assert time.monotonic() - began < SLOW_S, str(made)[:500]
        if path is not None:
            asked.sock.settimeout(0.05)
        try:
            status = asked.getresponse().status
        except TimeoutError:
            status = 0
        asked.close()
        found[status] = found.get(status, 0) + 1
    return found


def _asked(port: int, path: str | None, made: Any, cookie: str) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SLOW_S)
    headers = {"content-type": "application/json", "cookie": cookie}
    if path is None:
        connection.request("GET", made, headers=headers)
    else:
        connection.request("POST", path, json.dumps(made).encode(), headers)
    return connection
