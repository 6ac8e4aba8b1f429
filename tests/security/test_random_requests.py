"""300 random requests to each server neither hang nor end it."""

from __future__ import annotations

import http.client
import json
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from mclabel.serving.requests import RequestLimits
from tests.search.test_serve_search import serving as serving_search
from tests.support.shown import plain_run
from tests.support.viewer_process import ViewerHere

NUM_REQUESTS = 300
SLOW_S = 20.0
"""Seconds after which a server counts as hanging; normal answers take milliseconds."""
OTHERS: Sequence[Any] = (
    *(None, True, False, "", "x", "1", [], [[]], {}, {"kind": "beam"}, [None], [1], -1, 0, 1.5),
    *(1e308, -1e308, 2**63 - 1, 2**63, -(2**63), 10**12, 10**30, "\ud800", "x" * 5_000),
)


def near(*bounds: int) -> list[Any]:
    """Return the bounds, and the numbers just below and just above them."""
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
    """Send random requests, and check after each that a simple request is answered soon.

    A random request that is not answered soon is abandoned. Its search or scoring may take any
    time, as long as the server answers other requests.

    Args:
        port: port of the server.
        path: path of the random requests, which have a body; None for GET requests.
        simple: path of the simple requests, sent by another client.
        make: function from random numbers to a body, or to the path of a GET request.
        seed: seed of the random numbers.
        cookie: cookie of every request.

    Returns:
        Number of answers by status; 0 stands for abandoned requests.
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


LIMITS = RequestLimits(max_live=4, max_waiting=400)
SCRIPTED = {"engine": {"kind": "scripted", "num_steps": 2}, "max_tokens": 1_000}
MAX = 10**9
METHODS: dict[str, dict[str, list[Any]]] = {
    kind: {"n": near(1, 4, 4_096), "every": near(1, 10**6)}
    for kind in ("best_of_n", "beam", "dvts", "rebase", "particle")
}
for _kind in ("beam", "dvts"):
    METHODS[_kind]["width"] = near(1, 4, 4_096)
METHODS["rebase"]["temperature"] = near(0, MAX)
KEYS: dict[str, list[Any]] = {
    "n": near(1, 128),
    "seed": near(0, 2**63 - 1),
    "max_tokens": near(1, 1_000, MAX),
    "max_completion_tokens": near(1, MAX),
    "tokens": near(1, 1_000, 256_000, MAX),
    "choose": ["best", "majority", "weighted_vote"],
    "temperature": [0.8, 1],
    "stream": [True, False],
    "stream_options": [{"include_usage": True}, {"include_usage": 1}],
    "messages": [[{"role": "user", "content": 1}], [{"role": "user", "content": [{}]}]],
}


def random_settings(draw: random.Random, keys: dict[str, list[Any]]) -> dict[str, Any]:
    """Return one to three of the keys, with a value near a bound or of another type."""
    return {
        key: draw.choice(OTHERS if draw.random() < 0.3 else keys[key])
        for key in draw.sample(sorted(keys), min(len(keys), draw.randint(1, 3)))
    }


def search_request(draw: random.Random) -> Any:
    """Return a problem, with some keys of a request and of a method."""
    problem = {"role": "user", "content": f"P{draw.random()} [answer 1]"}
    body: dict[str, Any] = {"model": "arith:policy", "messages": [problem]}
    kind = draw.choice(sorted(METHODS))
    if draw.random() < 0.7:
        body["search"] = {"kind": kind, **random_settings(draw, METHODS[kind])}
    if draw.random() < 0.6:
        body |= random_settings(draw, KEYS)
    return body


NAMES = ["state", "solutions", "place", "summary", "export", "solution", "rollouts", "grades"]
NAMES += ["scores", "text", "text", "text", "nothing"]
"""Paths of the viewer's API; the last one does not exist."""
NUMBERS: list[Any] = [*near(0, 1, 50, 200, 1_000, 10**9, 2**31, 2**63), 10**400, -1.5, 1e308]
NUMBERS += ["nan", "-nan", "inf", "1e400", "\u0663", "\u00b2", "1_0", "+1", " 1 ", "0x1", "", "\0"]
NUMBERS += ["1" * 5_000, "\ud800", "'; DROP TABLE solutions; --", "%", "x" * 20_000]
TEXTS = ["step.0", "step.-1", "step.\u0663", "step.\u00b2", f"step.{10**30}", "step." + "1" * 5_000]
TEXTS += ["rollout.0.0", "rollout.0.-1", f"rollout.0.{2**63}", "rollout.0", "problem", "answer"]
TEXTS += ["step.", "", '"', '"a b" c']
SORTED_BY = ["any", "none", "right", "truncated", "lucky", "undecided", "width", "fall", "tokens"]
_ASKED = {"run offset limit step width id port": NUMBERS, "what q level": [*TEXTS, *NUMBERS]}
_ASKED["outcome mark sort error"] = [*SORTED_BY, *NUMBERS]
ASKED = {name: values for names, values in _ASKED.items() for name in names.split()}
"""Values of parameters, by name."""


def look(draw: random.Random, ids: list[str]) -> str:
    """Return a path with parameters, some of which occur several times."""
    asked = [
        (name, draw.choice(ASKED[name]))
        for name in draw.choices(sorted(ASKED), k=draw.randint(0, 4))
    ]
    if draw.random() < 0.6:
        asked += [("run", 0), ("id", draw.choice(ids)), ("what", draw.choice(TEXTS))]
    if draw.random() < 0.2:
        asked *= draw.choice([2, 100])
    draw.shuffle(asked)
    more = draw.choice(["", "", "", "/", "/..", "/%00", "/" + "a" * draw.choice([2_000, 60_000])])
    folder = "api" if draw.random() < 0.9 else draw.choice(["static", "static/viewer", ".."])
    query = urlencode([(name, str(one)) for name, one in asked], errors="surrogatepass")
    return f"/{folder}/{draw.choice(NAMES)}{more}?{query}"


@pytest.mark.slow
def test_the_viewer_stands_random_requests(tmp_path: Path) -> None:
    with ViewerHere(plain_run(tmp_path / "run")) as viewer:
        viewer.wait_for(3)
        made = partial(look, ids=[row["solution_id"] for row in viewer.get("solutions")["rows"]])
        found = ask_at_random(viewer.port, None, "/api/state", made, cookie=viewer.cookie)
        assert found.keys() <= {200, 307, 400, 404, 414}
        assert found[200] > 30 and found[404] > 50
        viewer.wait_for(3)


@pytest.mark.slow
def test_a_server_of_searches_stands_random_requests() -> None:
    with serving_search(policy=SCRIPTED, limits=LIMITS) as server:
        found = ask_at_random(server.port, "/v1/chat/completions", "/v1/models", search_request)
        assert found.keys() <= {0, 200, 400, 404}
        assert found[400] > 50 and found.get(0, 0) + found[200] > 50
    assert server.error is None
