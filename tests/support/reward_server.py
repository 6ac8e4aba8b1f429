"""A real HTTP reward server whose test chooses the reward rule; each line is a step."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from mclabel.rl.client import StepRewards

Rule = Callable[[dict[str, Any]], StepRewards]


def by_lines(item: dict[str, Any]) -> StepRewards:
    """Give step k of n the credit k / n.

    A completion is right if the answer occurs in its text. An empty completion is refused.
    """
    text = item["completion"]
    if not text.strip():
        return StepRewards(0.0, refused="empty")
    lines = text.splitlines(keepends=True)
    ends = [sum(map(len, lines[: k + 1])) for k in range(len(lines))]
    credits = [(k + 1) / len(lines) for k in range(len(lines))]
    right = item["answer"] is not None and str(item["answer"]) in text
    return StepRewards(
        reward=float(right),
        outcome="right" if right else "wrong",
        ends=tuple(ends),
        scores=tuple(credits),
        credits=tuple(credits),
        ends_segment=(True,) * len(lines),
    )


class RewardServer:
    """A context manager that serves at `server.url` and records every request in `asked`."""

    def __init__(self, rule: Rule = by_lines, token: str | None = None) -> None:
        self.rule, self.token = rule, token
        self.asked: list[list[dict[str, Any]]] = []

    def __enter__(self) -> RewardServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                authorization = self.headers.get("Authorization")
                if outer.token is not None and authorization != f"Bearer {outer.token}":
                    self.send_error(401)
                    return
                items = json.loads(body)["items"]
                items = [{"answer": None, "group": None, **item} for item in items]
                outer.asked.append(items)
                answer = json.dumps({"items": [asdict(outer.rule(item)) for item in items]})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(answer.encode())

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(20)
