"""Reads the answers of batches from the server's files into a local temporary file."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mclabel.core.errors import RequestFailed
from mclabel.engines import openai_batch_calls as calls
from mclabel.engines.endpoints import (
    Endpoints,
    RefusedError,
    error_message,
    error_status,
    is_temporary,
)
from mclabel.engines.openai_answer import find_error

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass
class BatchReading:
    """Findings in the files of an ended batch, except the answers."""

    failures: dict[str, Exception] = field(default_factory=dict)
    """Maps the ids of finally failed requests to their errors."""
    unprocessed: dict[str, str] = field(default_factory=dict)
    """Maps the ids of requests that the server did not process to its messages. Such requests can
    be sent again."""
    num_rows: int = 0
    """Number of valid rows in the files."""
    faults: list[str] = field(default_factory=list)
    """Messages about files that could not be read completely."""
    may_pass: bool = True
    """True if another attempt to read the files may succeed."""


class AnswerFile:
    """Answers of one server to requests in batches, by the ids of the requests."""

    def __init__(self, endpoints: Endpoints, url: str, retry_s: float) -> None:
        """Create an empty store.

        Args:
            endpoints: client of the single server.
            url: address of the server, for messages.
            retry_s: maximum seconds for which a request is retried while the server is busy.
        """
        self._endpoints, self._url, self._retry_s = endpoints, url, retry_s
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._places: dict[str, tuple[int, int]] = {}
        """Maps the id of a request to the place of its answer in the file: the 0-based offset of
        the first byte, and the number of bytes."""

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def get(self, key: str) -> bytes:
        """Return the body of an answer, as JSON."""
        start, size = self._places[key]
        return os.pread(self._file.fileno(), size, start)

    def discard_answer(self, key: str) -> None:
        """Drop the answer of a request, if it is stored."""
        self._places.pop(key, None)

    def close(self) -> None:
        """Delete the file with all answers."""
        self._file.close()

    async def read(self, batch: Mapping[str, Any], keys: Collection[str]) -> BatchReading:
        """Read the output file and the error file of a batch.

        Args:
            batch: state of an ended batch, which names the files.
            keys: ids of the requests whose rows are read.
        """
        reading = BatchReading()
        for kind in ("output_file_id", "error_file_id"):
            if not (file_id := batch.get(kind)):
                continue

            async def copy(client: AsyncOpenAI, file_id: str = str(file_id)) -> str:
                return await self._copy(client, file_id, keys, reading)

            try:
                fault = await self._endpoints.send_request(copy, home=0, retry_s=self._retry_s)
            except RefusedError as error:
                fault = str(error)
            except RequestFailed as error:  # all retries failed
                fault, reading.may_pass = str(error), False
            reading.faults += [f"{kind} {file_id}: {fault}"] if fault else []
        return reading

    async def _copy(
        self, client: AsyncOpenAI, file_id: str, keys: Collection[str], reading: BatchReading
    ) -> str:
        """Copy the answers in one of the server's files to the local file.

        Return a description of the file's fault, or an empty text.
        """
        places: dict[str, tuple[int, int]] = {}
        num_rows, fault = 0, ""
        async for row in calls.read_output_rows(client, file_id):
            key = None if row is None else row.get("custom_id")
            if row is None or not isinstance(key, str):
                words = "a line is not a row of a batch" if row is None else error_message(row)
                fault = fault or self._endpoints.clean_message(words)
                continue
            num_rows += 1
            if key not in keys or key in self:
                continue
            response = row.get("response")
            response = response if isinstance(response, dict) else {}
            status, body = response.get("status_code"), response.get("body")
            error = row.get("error") or (find_error(body) if isinstance(body, dict) else None)
            if status == 200 and isinstance(body, dict) and not error:
                content = json.dumps(body, separators=(",", ":")).encode()
                places[key] = (self._file.seek(0, os.SEEK_END), self._file.write(content))
            else:
                self._note_error(key, error or body, status, reading)
        self._file.flush()
        self._places |= places
        reading.num_rows += num_rows
        return fault or ("" if num_rows else "the file is empty")

    def _note_error(self, key: str, error: Any, status: Any, reading: BatchReading) -> None:
        """Record the error of a row: the request was not processed, or it has failed for good.

        Args:
            key: id of the request.
            error: the error in the row.
            status: HTTP status in the row; may be invalid.
            reading: findings to add the error to.
        """
        inner = error.get("error", error) if isinstance(error, dict) else error
        status = error_status(inner, status if type(status) is int else 200)
        words = error_message(inner)
        if is_temporary(status, inner):
            reading.unprocessed[key] = words
        else:
            reading.failures[key] = self._endpoints.refusal_error(self._url, status, inner, words)
