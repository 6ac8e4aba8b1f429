"""Calls of the Batch API of OpenAI-compatible servers: files, batches, and rows of responses.

Names and fields follow openai-python's `types.Batch` and the rows in OpenAI's guide, like `vllm
run-batch`. Any field of a response may be missing or malformed. `BatchRecords` records the sent
batches in the run.
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
from mclabel.engines.loading import RunFiles
from mclabel.engines.openai_answer import parse_json_object

if TYPE_CHECKING:
    from openai import AsyncOpenAI


ADDRESSES = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
"""Maps the name of an API to the URL path in the rows of a batch's input file."""
WINDOW: Any = "24h"
"""Time in which a batch is to end; the only value that the API accepts."""
MARK = "mclabel_batch"
"""Key in the metadata of a batch under which its name is stored."""
ENDED = frozenset({"completed", "expired", "cancelled", "failed"})
"""Final states of a batch."""
_PAGE = 100
"""Number of batches per page of the server's list."""


def request_row(request_id: str, address: str, body: Mapping[str, Any]) -> bytes:
    """Return the line for a request in a batch's input file.

    Args:
        request_id: id of the request.
        address: URL path of the API.
        body: body of the request.
    """
    row = {"custom_id": request_id, "method": "POST", "url": address, "body": body}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


async def upload_input_file(client: AsyncOpenAI, name: str, file: IO[bytes]) -> str:
    """Upload the input file of a batch and return its id on the server.

    Args:
        client: client of the server.
        name: name of the batch, which is also the file's name.
        file: the input file.
    """
    file.seek(0)
    raw = await client.files.with_raw_response.create(
        file=(name, file, "application/jsonl"), purpose="batch"
    )
    return _required_text(parse_json_object(raw.http_response.content, "/files"), "id", "/files")


def make_batch_creator(
    name: str, file_id: str, address: str
) -> Callable[[AsyncOpenAI], Awaitable[str]]:
    """Return a function that creates a batch from an uploaded file and returns the batch's id.

    If the function is called again, because the first answer was lost, it first searches the
    server for the batch.

    Args:
        name: mclabel's name of the batch, which is stored in its metadata.
        file_id: the server's id of the input file.
        address: URL path in the rows of the input file.
    """
    tried = False

    async def create(client: AsyncOpenAI) -> str:
        nonlocal tried
        if tried and (made := await find_batch(client, name, file_id)) is not None:
            return made
        tried = True
        endpoint: Any = address
        raw = await client.batches.with_raw_response.create(
            input_file_id=file_id,
            endpoint=endpoint,
            completion_window=WINDOW,
            metadata={MARK: name},
        )
        return _required_text(
            parse_json_object(raw.http_response.content, "/batches"), "id", "/batches"
        )

    return create


async def retrieve_batch(client: AsyncOpenAI, batch_id: str) -> dict[str, Any]:
    """Return the current state of a batch."""
    raw = await client.batches.with_raw_response.retrieve(batch_id)
    return parse_json_object(raw.http_response.content, "/batches")


async def list_batches(client: AsyncOpenAI, after: str | None, limit: int) -> list[dict[str, Any]]:
    """Return a page of the server's list of batches.

    Args:
        client: client of the server.
        after: id of the last batch of the previous page; None returns the first page.
        limit: maximum number of batches on the page.
    """
    page: Any = {} if after is None else {"after": after}
    raw = await client.batches.with_raw_response.list(limit=limit, **page)
    answer = parse_json_object(raw.http_response.content, "/batches")
    batches = answer.get("data") or []
    if (
        "data" not in answer
        or not isinstance(batches, list)
        or not all(isinstance(batch, dict) for batch in batches)
    ):
        raise BadAnswer("policy.engine: /batches does not return a list of batches")
    return batches


async def find_batch(client: AsyncOpenAI, name: str, file_id: str) -> str | None:
    """Return the server's id of the batch with this name or input file; None if there is none."""
    after = None
    while batches := await list_batches(client, after, _PAGE):
        for batch in batches:
            marks = batch.get("metadata")
            named = isinstance(marks, dict) and marks.get(MARK) == name
            if named or batch.get("input_file_id") == file_id:
                return _required_text(batch, "id", "/batches")
        last = _required_text(batches[-1], "id", "/batches")
        if last == after:
            return None  # the server ignores `after`, so it returned the whole list
        after = last
    return None


async def read_output_rows(
    client: AsyncOpenAI, file_id: str
) -> AsyncIterator[dict[str, Any] | None]:
    """Yield the rows of an output file while it is downloaded; yield None for a damaged line.

    Raises:
        BusyError: the connection was lost.
    """
    async with client.files.with_streaming_response.content(file_id) as response:
        rest = b""
        try:
            async for chunk in response.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in filter(bytes.strip, lines):
                    yield _parse_row(line)
        except _connection_error_class() as error:
            raise BusyError(f"the connection was lost: {error}") from error
        if rest.strip():
            yield _parse_row(rest)


def batch_status(batch: Mapping[str, Any]) -> str:
    """Return the status of a batch in lower case; empty if the object is not a batch."""
    status = batch.get("status")
    return status.lower() if isinstance(status, str) else ""


def num_completed(batch: Mapping[str, Any]) -> int:
    """Return the number of answered requests of a batch; 0 if the server does not report it."""
    counts = batch.get("request_counts")
    count = counts.get("completed") if isinstance(counts, dict) else None
    return count if type(count) is int else 0


def failure_reason(batch: Mapping[str, Any]) -> str:
    """Return the server's message about a failed batch."""
    errors = batch.get("errors")
    details = errors.get("data") if isinstance(errors, dict) else errors
    return json.dumps(details) if details else "the server gives no reason"


def _parse_row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _connection_error_class() -> type[Exception]:
    """Return the base class of connection errors that the client does not wrap.

    The client raises them while a body is read.
    """
    import openai

    package = sys.modules[openai.Timeout.__module__.partition(".")[0]]  # httpx, or httpx2
    return package.HTTPError  # type: ignore[no-any-return]


def _required_text(row: Mapping[str, Any], field: str, path: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise BadAnswer(f"policy.engine: {path} does not return {field}")
    return value


FOLDER = "batches"
"""Folder of a run in which its batches are recorded."""
ASKED, BATCH = ".asked.json", ".batch.json"
"""Endings of the two record files of a batch; see `BatchRecords`."""


def new_batch_name() -> str:
    """Return a name for a batch that sorts after the names of all earlier batches."""
    return f"{time.time_ns():020d}-{secrets.token_hex(6)}"


class CollectedRequests:
    """Collected requests that are not sent yet, in an unnamed temporary file.

    The system deletes the file even if the process is killed.
    """

    def __init__(self) -> None:
        """Create an empty collection."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (its owner closes it)
        self.lines: dict[str, tuple[int, int]] = {}
        """Maps the id of a request to the place of its line in the file: the 0-based offset of the
        first byte, and the number of bytes."""
        self.num_bytes = 0

    def add(self, key: str, line: bytes) -> None:
        """Add a request.

        Args:
            key: id of the request.
            line: line for the batch's input file.
        """
        self.file.write(line)
        self.lines[key] = (self.num_bytes, len(line))
        self.num_bytes += len(line)

    def without(self, keys: set[str]) -> CollectedRequests:
        """Return a new collection without the given requests, and close this one.

        Args:
            keys: ids of the requests to leave out.
        """
        others = CollectedRequests()
        self.file.flush()
        for key, (start, size) in self.lines.items():
            if key not in keys:
                others.add(key, os.pread(self.file.fileno(), size, start))
        self.file.close()
        return others


class BatchRecords:
    """Records of a run's batches, written by all its processes.

        batches/NAME.asked.json    server's id of the input file, and ids of the requests; written
                                   before the batch is created
        batches/NAME.batch.json    server's id of the batch; written after the batch is created

    Names sort by time. If a request is in several batches, the last one counts.
    """

    def __init__(self, keep: RunFiles) -> None:
        """Open the records without reading them.

        Args:
            keep: store of the run's files.
        """
        self._keep = keep
        self._known: set[str] = set()

    async def read_added_batches(self) -> dict[str, str]:
        """Read the batches that were recorded since the last call.

        Returns:
            Maps the ids of their requests to the names of the batches.

        Raises:
            EngineError: a record is damaged.
        """
        contents: dict[str, str] = {}
        for path in await asyncio.to_thread(self._keep.names, FOLDER):
            name = path.removeprefix(f"{FOLDER}/").removesuffix(ASKED)
            if path.endswith(ASKED) and name not in self._known:
                self._known.add(name)
                contents |= dict.fromkeys((await self.read_requests(name))[1], name)
        return contents

    async def read_requests(self, name: str) -> tuple[str, list[str]]:
        """Return the server's id of a batch's input file, and the ids of the batch's requests."""
        record = await self._read(name + ASKED)
        file, requests = record.get("file"), record.get("requests")
        if not isinstance(file, str) or not isinstance(requests, list):
            raise _damaged_file_error(name + ASKED)
        return file, requests

    async def batch_id(self, name: str) -> str | None:
        """Return the server's id of a batch; None if the batch may not have been created."""
        server_id = (await self._read(name + BATCH)).get("id")
        return server_id if isinstance(server_id, str) else None

    async def record_requests(self, name: str, file: str, requests: Sequence[str]) -> None:
        """Record the input file and the requests of a batch before it is created."""
        self._known.add(name)
        await self._write(name + ASKED, {"file": file, "requests": requests})

    async def record_batch_id(self, name: str, batch_id: str) -> None:
        """Record the server's id of a created batch."""
        await self._write(name + BATCH, {"id": batch_id})

    async def delete(self, name: str) -> None:
        """Delete the records of a batch."""
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
            raise _damaged_file_error(name) from error
        if not isinstance(content, dict):
            raise _damaged_file_error(name)
        return content


def _damaged_file_error(name: str) -> EngineError:
    return EngineError(
        f"{FOLDER}/{name} of the run: the file is damaged. Restore it from a copy, or delete it to "
        "send and pay for the requests of the batch again"
    )
