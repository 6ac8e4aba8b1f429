"""300 random requests to the viewer neither hang nor end it."""

from __future__ import annotations

import http.client
import random
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.shown import plain_run
from tests.support.viewer_process import ViewerHere

NUM_REQUESTS = 300
HANGS_S = 120.0
"""Seconds after which a server counts as hanging; normal answers take milliseconds."""


def list_neighbours(*bounds: int) -> list[Any]:
    """Return the bounds, and the numbers just below and just above them."""
    return [bound + by for bound in bounds for by in (-1, 0, 1)]


def get_status(port: int, path: str, cookie: str) -> int:
    """Return the status of the answer to a GET request; raise an error if the server hangs."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANGS_S)
    connection.request("GET", path, headers={"cookie": cookie})
    with closing(connection):
        return connection.getresponse().status


NAMES = (
    *("state", "solutions", "place", "summary", "export", "solution", "rollouts", "grades"),
    *("scores", "text", "text", "text", "nothing"),
)
"""Paths of the viewer's API; the last one does not exist."""
NUMBERS = (
    *list_neighbours(0, 1, 50, 200, 1_000, 10**9, 2**31, 2**63),
    *(10**400, -1.5, 1e308),
    *("nan", "-nan", "inf", "1e400", "\u0663", "\u00b2", "1_0", "+1", " 1 ", "0x1", "", "\0"),
    *("1" * 5_000, "\ud800", "'; DROP TABLE solutions; --", "%", "x" * 20_000),
)
TEXTS = (
    *("step.0", "step.-1", "step.\u0663", "step.\u00b2", f"step.{10**30}", "step." + "1" * 5_000),
    *("rollout.0.0", "rollout.0.-1", f"rollout.0.{2**63}", "rollout.0", "problem", "answer"),
    *("step.", "", '"', '"a b" c'),
)
SORTED_BY = ["any", "none", "right", "truncated", "lucky", "undecided", "width", "fall", "tokens"]
_ASKED = {"run offset limit step width id port": NUMBERS, "what q level": [*TEXTS, *NUMBERS]}
_ASKED["outcome mark sort error"] = [*SORTED_BY, *NUMBERS]
ASKED = {name: values for names, values in _ASKED.items() for name in names.split()}
"""Values of parameters, by name."""


def random_path(draw: random.Random, ids: list[str]) -> str:
    """Return a path with parameters, some of which occur several times."""
    parameters = [
        (name, draw.choice(ASKED[name]))
        for name in draw.choices(sorted(ASKED), k=draw.randint(0, 4))
    ]
    if draw.random() < 0.6:
        parameters += [("run", 0), ("id", draw.choice(ids)), ("what", draw.choice(TEXTS))]
    if draw.random() < 0.2:
        parameters *= draw.choice([2, 100])
    draw.shuffle(parameters)
    more = draw.choice(["", "", "", "/", "/..", "/%00", "/" + "a" * draw.choice([2_000, 60_000])])
    folder = "api" if draw.random() < 0.9 else draw.choice(["static", "static/viewer", ".."])
    query = urlencode([(name, str(value)) for name, value in parameters], errors="surrogatepass")
    return f"/{folder}/{draw.choice(NAMES)}{more}?{query}"


@pytest.mark.slow
def test_the_viewer_stands_random_requests(tmp_path: Path) -> None:
    with ViewerHere(plain_run(tmp_path / "run")) as viewer:
        viewer.wait_for(3)
        ids = [row["solution_id"] for row in viewer.get("solutions")["rows"]]
        draw, statuses = random.Random(0), Counter[int]()
        for _ in range(NUM_REQUESTS):
            path = random_path(draw, ids)
            statuses[get_status(viewer.port, path, viewer.cookie)] += 1
            assert get_status(viewer.port, "/api/state", viewer.cookie) == 200, path[:500]
        assert statuses.keys() <= {200, 307, 400, 404, 414}
        assert statuses[200] > 30 and statuses[404] > 50
        viewer.wait_for(3)
