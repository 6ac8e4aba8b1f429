"""The server of `mclabel view` in a thread, and a client for it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import anyio
import pytest
from starlette.types import ASGIApp

from mclabel.report.viewer import server as viewer
from mclabel.serving.run import make_server

WAIT_S = 120.0


class ViewerHere:
    """A context manager that runs a viewer of some runs in a thread of this process."""

    def __init__(self, *runs: str) -> None:
        self._runs = runs

    def __enter__(self) -> Self:
        self.address = self._start()
        parts = urlsplit(self.address)
        self.port = parts.port or 0
        self.origin = f"http://127.0.0.1:{self.port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", self.port)
        _, headers, _ = self.ask(f"/?{parts.query}")
        self.cookie = headers["set-cookie"].split(";")[0]
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self._stop()

    def _start(self) -> str:
        ready: SimpleQueue[str] = SimpleQueue()

        def serve_until_stopped(app: ASGIApp, listening: socket.socket) -> None:
            self._server = make_server(app)
            anyio.run(partial(self._server.serve, sockets=[listening]))

        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(viewer, "serve_page", serve_until_stopped)
        begin = partial(viewer.serve, self._runs, port=0, on_ready=ready.put)
        self._thread = Thread(target=begin, daemon=True)
        self._thread.start()
        return ready.get(timeout=WAIT_S)

    def _stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(WAIT_S)
        self._patch.undo()
        assert not self._thread.is_alive()

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Send a request; return the status, headers and body of the response."""
        try:
            response = self._send_request(path, headers)
        except ConnectionResetError:  # the server closes idle connections
            response = self._send_request(path, headers)
        body = response.read()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, body

    def _send_request(self, path: str, headers: dict[str, str]) -> http.client.HTTPResponse:
        self._connection.request("GET", path, headers=headers)
        return self._connection.getresponse()

    def get(self, name: str, **parameters: Any) -> Any:
        """Return the decoded response of an API call."""
        status, _, body = self.ask(f"/api/{name}?{urlencode(parameters)}", cookie=self.cookie)
        if status != 200:
            raise RuntimeError(f"{name} {parameters}: {status} {body[:300]!r}")
        return json.loads(body)

    def wait_for(self, num_solutions: int) -> None:
        """Wait until `num_solutions` solutions are in the index."""
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            state = self.get("state")
            if state["counts"]["total"] >= num_solutions and not state["pending"]:
                return
            time.sleep(0.1)
        raise TimeoutError(f"{num_solutions} solutions: {self.get('state')}")
