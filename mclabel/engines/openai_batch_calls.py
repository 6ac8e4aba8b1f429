"""Calls of the Batch API of OpenAI-compatible servers: files, batches, and rows of answers.

Names and fields are those of openai-python's `types.Batch` and of the rows that OpenAI's guide
shows; `vllm run-batch` reads and writes the same rows. Any field of an answer may lack or be
anything.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import IO, TYPE_CHECKING, Any

from mclabel.core.errors import BadAnswer
from mclabel.engines.endpoints import BusyError
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
    """The line of a batch's file that holds a request."""
    row = {"custom_id": request_id, "method": "POST", "url": address, "body": body}
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


async def upload(client: AsyncOpenAI, name: str, file: IO[bytes]) -> str:
    """Id of a file that now is on the server, too."""
    file.seek(0)
    raw = await client.files.with_raw_response.create(
        file=(name, file, "application/jsonl"), purpose="batch"
    )
    return _text(json_object(raw.http_response.content, "/files"), "id", "/files")


def creating(name: str, file_id: str, address: str) -> Callable[[AsyncOpenAI], Awaitable[str]]:
    """A call that makes a batch of a file and returns its id.

    When it is made again, as its answer was lost, it looks first whether the batch is there.

    Args:
        name: of the batch with us, which goes into its metadata.
        file_id: of its file on the server.
        address: that its requests name.
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
    """A batch as it is now."""
    raw = await client.batches.with_raw_response.retrieve(batch_id)
    return json_object(raw.http_response.content, "/batches")


async def listed(client: AsyncOpenAI, after: str | None, limit: int) -> list[dict[str, Any]]:
    """A page of the server's batches."""
    page: Any = {} if after is None else {"after": after}
    raw = await client.batches.with_raw_response.list(limit=limit, **page)
    batches = json_object(raw.http_response.content, "/batches").get("data") or []
    if not isinstance(batches, list) or not all(isinstance(one, dict) for one in batches):
        raise BadAnswer("policy.engine: /batches does not return a list of batches")
    return batches


async def find(client: AsyncOpenAI, name: str, file_id: str) -> str | None:
    """Id of the batch that was made under a name, or of a file; None if there is none."""
    after = None
    while batches := await listed(client, after, _PAGE):
        for one in batches:
            marks = one.get("metadata")
            named = isinstance(marks, dict) and marks.get(MARK) == name
            if named or one.get("input_file_id") == file_id:
                return _text(one, "id", "/batches")
        last = _text(batches[-1], "id", "/batches")
        if last == after:
            return None  # a server without pages
        after = last
    return None


async def rows(client: AsyncOpenAI, file_id: str) -> AsyncIterator[dict[str, Any]]:
    """The rows of a file of answers, piece by piece; what is no row is left out.

    Raises:
        BusyError: the connection was lost.
    """
    async with client.files.with_streaming_response.content(file_id) as response:
        rest = b""
        try:
            async for chunk in response.iter_bytes():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if (row := _row(line)) is not None:
                        yield row
        except _lost_connection() as error:
            raise BusyError(f"the connection was lost: {error}") from error
        if (row := _row(rest)) is not None:
            yield row


def why(batch: Mapping[str, Any]) -> str:
    """What a server says of a batch that has failed."""
    errors = batch.get("errors")
    found = errors.get("data") if isinstance(errors, dict) else errors
    return json.dumps(found) if found else "it gives no reason"


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        return json_object(line, "a batch's file")
    except BadAnswer:
        return None  # its request counts as not answered


def _lost_connection() -> type[Exception]:
    """What the client raises while a body is read: it wraps that of other calls alone."""
    import openai

    package = sys.modules[openai.Timeout.__module__.partition(".")[0]]  # httpx, or httpx2
    error: type[Exception] = package.HTTPError
    return error


def _text(row: Mapping[str, Any], field: str, path: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise BadAnswer(f"policy.engine: {path} does not return {field}")
    return value
