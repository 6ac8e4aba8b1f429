"""A signal ends every server, even if its event loop hangs."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.in_thread import until
from tests.support.labelled import arith_rows, write_run
from tests.support.ports import free_port

pytestmark = pytest.mark.slow

WAIT_S = 120.0
END_S = 30.0
"""Maximum seconds until a server has ended, far above its own limit, for busy machines."""
SPINS = '''
import pathlib

from mclabel.rl.credit_methods import OutcomeCredit
from mclabel.search.scorers import ConstantScorer


def spin():
    pathlib.Path("spinning").touch()
    while True:
        pass


class Scorer(ConstantScorer):
    class Settings(ConstantScorer.Settings):
        """As of constant."""

    async def score(self, beginning):
        spin()


class Credit(OutcomeCredit):
    class Settings(OutcomeCredit.Settings):
        """As of outcome."""

    def assign(self, group):
        spin()


async def answer(handler, request):
    spin()


if __name__ == "__main__":
    from mclabel.__main__ import main
    from mclabel.report.viewer import server

    server._send_json = answer
    main()
'''
SEARCH = {"model": "arith:policy", "messages": [{"role": "user", "content": "1 + 1"}]}
SCORE = {"items": [{"problem": "p", "completion": "\\boxed{2}", "answer": "2"}]}
SERVERS = {
    "serve-search": (
        ["serve-search", "empty.yaml", "scorer=spins:Scorer", "policy.engine=scripted"],
        ("/v1/chat/completions", SEARCH),
    ),
    "serve-rewards": (["serve-rewards", "empty.yaml", "credit=spins:Credit"], ("/score", SCORE)),
    "view": (["view", "run"], ("/api/state", None)),
}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("serve-search", signal.SIGINT),
        ("serve-rewards", signal.SIGTERM),
        ("view", signal.SIGINT),
    ],
)
def test_a_server_that_hangs_is_ended_by_a_signal(
    tmp_path: Path, name: str, number: signal.Signals
) -> None:
    arguments, (path, body) = SERVERS[name]
    (tmp_path / "spins.py").write_text(SPINS)
    (tmp_path / "empty.yaml").write_text("")
    if name == "view":
        write_run(tmp_path / "run", arith_rows(1, per_problem=1))
    package = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-u", "spins.py", *arguments, "--port", str(free_port())],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "PYTHONPATH": f"{package}:{tmp_path}"},
    )
    try:
        matches = (re.search(r"http://\S+", line) for line in process.stdout)
        address = urlsplit(next(match[0] for match in matches if match is not None))
        client = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=WAIT_S)
        headers = {"content-type": "application/json"}
        if address.query:
            client.request("GET", f"/?{address.query}")
            answer = client.getresponse()
            answer.read()
            headers["cookie"] = answer.headers["set-cookie"].partition(";")[0]
        content = None if body is None else json.dumps(body)
        client.request("GET" if body is None else "POST", path, content, headers)
        until((tmp_path / "spinning").exists)
        process.send_signal(number)
        assert process.wait(END_S) == 128 + number
    finally:
        process.kill()
        process.communicate()
