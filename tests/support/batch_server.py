"""Our own test server of OpenAI's Batch API, written from its documentation.

Files and batches are kept in memory. A batch moves to its next state each time it is retrieved, so
no test waits for a clock. The server counts the paid answers to each request.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import Any

from aiohttp import web

from tests.support.openai_server import Server

STATES = ("validating", "in_progress", "finalizing")
NOT_YET = b'{"error": {"message": "The file is not ready.", "code": "not_ready"}}'
FILE_FAULTS: dict[str, tuple[int, bytes | None]] = {
    "error body": (200, NOT_YET),
    "absent": (404, NOT_YET),
    "empty": (200, b""),
    "cut": (200, None),
}
"""Status and body of a file that cannot be read. The body None stands for the first half of the
content.
"""


class BatchServer(Server):
    """A model server that also answers batches.

    Set `endings` to control how the next batches end.
    """

    def __init__(self, *, has_batches: bool = True, **server: Any) -> None:
        super().__init__(**server)
        self.has_batches = has_batches
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self.endings: deque[tuple[str, int]] = deque()
        """Final state of the next batches, each with the number of requests that are answered by
        then. Without an entry a batch is completed. The state `never` leaves the batch running.
        """
        self.row_errors: dict[str, dict[str, Any]] = {}
        """Rows (`response` and `error`) that replace an answer, by a text in the request."""
        self.asked: Counter[str] = Counter()
        """Number of submissions of each request, by custom id."""
        self.lost_files: deque[str] = deque()
        """Faults of the answer file at its next readings: `unnamed` in its batch, or a key of
        `FILE_FAULTS`.
        """
        self.lost_polls: deque[dict[str, Any]] = deque()
        """Bodies of the next responses about a batch."""
        self.lost_lists: deque[dict[str, Any] | None] = deque()
        """Bodies of the next lists of batches; None for a correct list."""
        self.paid: Counter[str] = Counter()
        """Number of paid answers, by custom id."""
        self.lose_creations = 0
        """Number of coming responses to `POST /batches` that get lost."""

    def add_routes(self, app: web.Application) -> None:
        if not self.has_batches:
            return
        app.router.add_post("/v1/files", self._upload)
        app.router.add_get("/v1/files/{id}/content", self._content)
        app.router.add_post("/v1/batches", self._create)
        app.router.add_get("/v1/batches", self._list)
        app.router.add_get("/v1/batches/{id}", self._retrieve)

    async def _upload(self, request: web.Request) -> web.Response:
        form = await request.post()
        file: Any = form["file"]
        assert form["purpose"] == "batch"
        name = self._keep(file.file.read())
        return web.json_response({"id": name, "object": "file", "purpose": "batch"})

    async def _content(self, request: web.Request) -> web.Response:
        content = self.files[request.match_info["id"]]
        if self.lost_files and self.lost_files[0] != "unnamed":
            status, body = FILE_FAULTS[self.lost_files.popleft()]
            content = body if body is not None else content[: len(content) // 2]
            return web.Response(body=content, status=status)
        return web.Response(body=content)

    async def _create(self, request: web.Request) -> web.Response:
        if (refusal := self._unauthorised(request)) is not None:
            return refusal
        asked = await request.json()
        assert asked["completion_window"] == "24h"
        rows = self.files[asked["input_file_id"]].splitlines()
        self.asked.update(json.loads(row)["custom_id"] for row in rows)
        batch_id = f"batch-{len(self.batches)}"
        self.batches[batch_id] = {
            **{name: asked[name] for name in ("input_file_id", "endpoint", "completion_window")},
            **{"id": batch_id, "object": "batch", "metadata": asked["metadata"]},
            **{"status": STATES[0], "ending": self.endings.popleft() if self.endings else None},
        }
        if self.lose_creations:
            self.lose_creations -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(self._shown(batch_id))

    async def _list(self, request: web.Request) -> web.Response:
        if self.lost_lists and (body := self.lost_lists.popleft()) is not None:
            return web.json_response(body)
        ids = list(reversed(self.batches))
        after, limit = request.query.get("after"), int(request.query.get("limit", 20))
        start = 0 if after is None else ids.index(after) + 1
        page = ids[start : start + limit]
        shown = [self._shown(one) for one in page]
        return web.json_response({"data": shown, "has_more": start + limit < len(ids)})

    async def _retrieve(self, request: web.Request) -> web.Response:
        if self.lost_polls:
            return web.json_response(self.lost_polls.popleft())
        batch = self.batches[request.match_info["id"]]
        state, count = batch["ending"] or ("completed", -1)
        if batch["status"] in STATES[:-1]:
            batch["status"] = STATES[STATES.index(batch["status"]) + 1]
        elif batch["status"] == STATES[-1] and state != "never":
            self._end(request, batch, state, count)
        shown = self._shown(batch["id"])
        if batch["status"] not in STATES and self.lost_files and self.lost_files[0] == "unnamed":
            self.lost_files.popleft()
            shown["output_file_id"] = None
        return web.json_response(shown)

    def _end(self, request: web.Request, batch: dict[str, Any], state: str, count: int) -> None:
        batch["status"] = state
        if state == "failed":
            batch["errors"] = {"data": [{"code": "token_limit_exceeded", "message": "too many"}]}
            return
        rows = [json.loads(line) for line in self.files[batch["input_file_id"]].splitlines()]
        assert len({row["custom_id"] for row in rows}) == len(rows)
        good, bad = [], []
        for row in rows if count < 0 else rows[:count]:
            assert row["url"] == batch["endpoint"] and row["method"] == "POST"
            text = json.dumps(row["body"])
            error = next((row for name, row in self.row_errors.items() if name in text), None)
            if error is not None:
                bad.append({"custom_id": row["custom_id"], **error})
                continue
            reply = self._reply(request, row["body"], row["url"].endswith("/chat/completions"))
            assert isinstance(reply.body, bytes)
            answer = {"status_code": reply.status, "request_id": "r"}
            answer["body"] = json.loads(reply.body)
            found = good if reply.status == 200 else bad
            found.append({"custom_id": row["custom_id"], "response": answer, "error": None})
            self.paid[row["custom_id"]] += reply.status == 200
        num_failed = len(rows) - len(good)
        counts = {"total": len(rows), "completed": len(good), "failed": num_failed}
        batch["request_counts"] = counts
        error = {"code": f"batch_{state}", "message": "not executed in time"}
        bad += [
            {"custom_id": row["custom_id"], "response": None, "error": error}
            for row in (rows[count:] if count >= 0 else [])
        ]
        for field, found in (("output_file_id", good), ("error_file_id", bad)):
            if found:  # the order differs from that of the requests
                lines = (json.dumps(row) + "\n" for row in reversed(found))
                batch[field] = self._keep("".join(lines).encode())

    def _keep(self, content: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return name

    def _shown(self, batch_id: str) -> dict[str, Any]:
        return {name: value for name, value in self.batches[batch_id].items() if name != "ending"}
