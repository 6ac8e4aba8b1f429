"""Calls of the Batch API of OpenAI-compatible servers: files, batches, and rows of responses.

Names and fields are those of openai-python's `types.Batch` and of the rows in OpenAI's guide, which
`vllm run-batch` shares; any field of a response may be missing or malformed. `Records` keeps what
was sent in the run.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from mclabel.core.errors import BadAnswer, EngineError
from mclabel.engines.endpoints import BusyError
from mclabel.engines.loading import Keep
from mclabel.engines.openai_answer import json_object

if TYPE_CHECKING:
    from openai import AsyncOpenAI


ADDRESSES = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
"""The address that a request in a file names, by API."""
WINDOW: Any = "24h"
"""In which a batch is to end; the API knows no other."""
MARK = "mclabel_batch"
"""Name in a batch's metadata."""
ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
"""States of a batch that do not change any more."""
_PAGE = 100


def request_row(request_id: str, address: str, body: Mapping[str, Any]) -> bytes:
    """Return the line of a batch's file that holds a request."""
    row = {"custom_id": request_id, "method": "POST", "url": address, "body": body}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


async def upload(client: AsyncOpenAI, name: str, file: IO[bytes]) -> str:
    """Upload a file and return its id on the server."""
    file.seek(0)
    raw = await client.files.with_raw_response.create(
        file=(name, file, "application/jsonl"), purpose="batch"
    )
    return _text(json_object(raw.http_response.content, "/files"), "id", "/files")


def creating(name: str, file_id: str, address: str) -> Callable[[AsyncOpenAI], Awaitable[str]]:
    """Return a call that makes a batch of a file and returns its id.

    When it is made again, as its answer was lost, it looks first whether the batch is there.

    Args:
        name: our name for the batch, which goes into its metadata.
        file_id: the server's id of its file.
        address: address that its requests name.
    """
    tried = False

    async def create(client: AsyncOpenAI) -> str:
        nonlocal tried
        if tried and (made := await find(client, name, file_id)) is not None:
            return made
        tried = True
        endpoint: Any = address
        raw = await client.batches.with_raw_response.create(
            input_file_id=file_id,
            endpoint=endpoint,
            completion_window=WINDOW,
            metadata={MARK: name},
        )
        return _text(json_object(raw.http_response.content, "/batches"), "id", "/batches")

    return create


async def retrieve(client: AsyncOpenAI, batch_id: str) -> dict[str, Any]:
    """Return a batch as it is now."""
    raw = await client.batches.with_raw_response.retrieve(batch_id)
    return json_object(raw.http_response.content, "/batches")


async def listed(client: AsyncOpenAI, after: str | None, limit: int) -> list[dict[str, Any]]:
    """Return a page of the server's batches."""
    page: Any = {} if after is None else {"after": after}
    raw = await client.batches.with_raw_response.list(limit=limit, **page)
    answer = json_object(raw.http_response.content, "/batches")
    batches = answer.get("data") or []
    if (
        "data" not in answer
        or not isinstance(batches, list)
        or not all(isinstance(batch, dict) for batch in batches)
    ):
        raise BadAnswer("policy.engine: /batches does not return a list of batches")
    return batches


async def find(client: AsyncOpenAI, name: str, file_id: str) -> str | None:
    """Return the id of the batch with this name, or of a file; None if there is none."""
    after = None
    while batches := await listed(client, after, _PAGE):
        for batch in batches:
            marks = batch.get("metadata")
            named = isinstance(marks, dict) and marks.get(MARK) == name
            if named or batch.get("input_file_id") == file_id:
                return _text(batch, "id", "/batches")
        last = _text(batches[-1], "id", "/batches")
        if last == after:
            return None  # a server without pages
        after = last
    return None


async def rows(client: AsyncOpenAI, file_id: str) -> AsyncIterator[dict[str, Any] | None]:
    """Read the rows of a file of answers, piece by piece; None stands for a damaged line.

    Raises:
        BusyError: the connection was lost.
    """
    async with client.files.with_streaming_response.content(file_id) as response:
        rest = b""
        try:
            async for chunk in response.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(bytes.strip, lines):
                    yield _row(line)
        except _lost_connection() as error:
            raise BusyError(f"the connection was lost: {error}") from error
        if rest.strip():
            yield _row(rest)


def status_of(batch: Mapping[str, Any]) -> str:
    """Return the state of a batch in small letters; empty if the object is no batch."""
    status = batch.get("status")
    return status.lower() if isinstance(status, str) else ""


def num_completed(batch: Mapping[str, Any]) -> int:
    """Return how many requests of a batch were answered, as far as the server reports that."""
    counts = batch.get("request_counts")
    count = counts.get("completed") if isinstance(counts, dict) else None
    return count if type(count) is int else 0


def why(batch: Mapping[str, Any]) -> str:
    """Return the server's message about a failed batch."""
    errors = batch.get("errors")
    details = errors.get("data") if isinstance(errors, dict) else errors
    return json.dumps(details) if details else "it gives no reason"


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _lost_connection() -> type[Exception]:
    """Return the errors that the client raises unwrapped while a body is read."""
    import openai

    package = sys.modules[openai.Timeout.__module__.partition(".")[0]]  # httpx, or httpx2
    return package.HTTPError  # type: ignore[no-any-return]


def _text(row: Mapping[str, Any], field: str, path: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise BadAnswer(f"policy.engine: {path} does not return {field}")
    return value


FOLDER = "batches"
"""Folder of a run that records its batches."""
ASKED, BATCH = ".asked.json", ".batch.json"


def new_name() -> str:
    """Return a name for a batch that sorts after all earlier ones."""
    return f"{time.time_ns():020d}-{secrets.token_hex(6)}"


class Gathered:
    """Requests that were not sent yet; their lines are in a file that no kill leaves behind."""

    def __init__(self) -> None:
        """Begin with none."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (its owner closes it)
        self.lines: dict[str, tuple[int, int]] = {}
        """Place of each request's line: first byte and number of bytes."""
        self.num_bytes = 0

    def add(self, key: str, line: bytes) -> None:
        """Add a request's line."""
        self.file.write(line)
        self.lines[key] = (self.num_bytes, len(line))
        self.num_bytes += len(line)

    def without(self, keys: set[str]) -> Gathered:
        """Return the same requests without some of them."""
        others = Gathered()
        self.file.flush()
        for key, (start, size) in self.lines.items():
            if key not in keys:
                others.add(key, os.pread(self.file.fileno(), size, start))
        self.file.close()
        return others


class Records:
    """The batches of a run, as all its processes have recorded them.

        batches/NAME.asked.json    the server's file and the ids of its requests; before the batch
        batches/NAME.batch.json    the id that the server gave the batch

    Names sort by time, so of several batches that hold a request the last one counts.
    """

    def __init__(self, keep: Keep) -> None:
        """Start with no known batches.

        Args:
            keep: the files of the run.
        """
        self._keep = keep
        self._known: set[str] = set()

    async def news(self) -> dict[str, str]:
        """Return the batches that were recorded since the last call, by the ids of their requests.

        Raises:
            EngineError: a record is damaged.
        """
        contents: dict[str, str] = {}
        for path in await asyncio.to_thread(self._keep.names, FOLDER):
            name = path.removeprefix(f"{FOLDER}/").removesuffix(ASKED)
            if path.endswith(ASKED) and name not in self._known:
                self._known.add(name)
                contents |= dict.fromkeys((await self.asked(name))[1], name)
        return contents

    async def asked(self, name: str) -> tuple[str, list[str]]:
        """Return a batch's file on the server, and the ids of its requests."""
        record = await self._read(name + ASKED)
        file, requests = record.get("file"), record.get("requests")
        if not isinstance(file, str) or not isinstance(requests, list):
            raise _damaged(name + ASKED)
        return file, requests

    async def batch_id(self, name: str) -> str | None:
        """Return the server's id of a batch; None if it is unknown whether it was made."""
        server_id = (await self._read(name + BATCH)).get("id")
        return server_id if isinstance(server_id, str) else None

    async def note_asked(self, name: str, file: str, requests: Sequence[str]) -> None:
        """Record the requests of a batch before it is created."""
        self._known.add(name)
        await self._write(name + ASKED, {"file": file, "requests": requests})

    async def note_batch(self, name: str, batch_id: str) -> None:
        """Record the server's id of a created batch."""
        await self._write(name + BATCH, {"id": batch_id})

    async def delete(self, name: str) -> None:
        """Delete the record of a batch."""
        for kind in (BATCH, ASKED):
            await asyncio.to_thread(self._keep.delete, f"{FOLDER}/{name}{kind}")

    async def _write(self, name: str, content: Mapping[str, Any]) -> None:
        data = json.dumps(content, separators=(",", ":")).encode()
        await asyncio.to_thread(self._keep.create, f"{FOLDER}/{name}", data)

    async def _read(self, name: str) -> dict[str, Any]:
        raw = await asyncio.to_thread(self._keep.read, f"{FOLDER}/{name}")
        try:
            content = json.loads(raw or b"{}")
        except ValueError as error:
            raise _damaged(name) from error
        if not isinstance(content, dict):
            raise _damaged(name)
        return content


def _damaged(name: str) -> EngineError:
    return EngineError(
        f"{FOLDER}/{name} of the run: is damaged. Restore it from a copy, or delete it: then its "
        "requests are asked, and paid, again"
    )
