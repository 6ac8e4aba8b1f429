"""`mclabel view` as a process of its own, and a client for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlencode, urlsplit

WAIT_S = 120.0


class ViewerProcess:
    """A viewer of some runs; a context manager that ends it."""

    def __init__(self, *runs: str) -> None:
        self._runs = runs

    def __enter__(self) -> ViewerProcess:
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-m", "mclabel", "view", *self._runs],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(r"http://\S+", line):
                self.address = found[0]
                break
        else:
            raise RuntimeError("mclabel view has ended without an address")
        parts = urlsplit(self.address)
        self.port = parts.port or 0
        self.origin = f"http://127.0.0.1:{self.port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port)
        _, headers, _ = self.ask(f"/?{parts.query}")
        self.cookie = headers["set-cookie"].split(";")[0]
        return self

    def __exit__(self, *error: object) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(WAIT_S)

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        try:
            response = self._asked(path, headers)
        except http.client.RemoteDisconnected:  # the server closes idle connections
            response = self._asked(path, headers)
        body = response.read()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, body

    def _asked(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", path, headers=headers)
        return self._connection.getresponse()

    def get(self, name: str, **parameters: Any) -> Any:
        """What the pages would be told."""
        status, _, body = self.ask(f"/api/{name}?{urlencode(parameters)}", cookie=self.cookie)
        if status != 200:
            raise RuntimeError(f"{name} {parameters}: {status} {body[:300]!r}")
        return json.loads(body)

    def wait_for(self, num_solutions: int) -> None:
        """Wait until so many solutions are in the index."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            state = self.get("state")
            if state["counts"]["total"] >= num_solutions and not state["pending"]:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{num_solutions} solutions: {self.get('state')}")
