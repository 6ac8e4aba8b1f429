"""Answers of batches: read from the files of the server, and kept in one of ours until fetched."""

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
    error_status,
    error_words,
    is_passing,
)
from mclabel.engines.openai_answer import error_in

if TYPE_CHECKING:
    from openai import AsyncOpenAI


@dataclass
class Reading:
    """Findings in the files of an ended batch, apart from answers."""

    failures: dict[str, Exception] = field(default_factory=dict)
    """Errors of requests that stay."""
    unprocessed: dict[str, str] = field(default_factory=dict)
    """Messages of the requests that the server did not process, and would take again."""
    num_rows: int = 0
    """Rows of requests."""
    faults: list[str] = field(default_factory=list)
    """Faults of the files."""
    may_pass: bool = True
    """True if that may be better the next time."""


class Answers:
    """Answers of one server to requests in batches."""

    def __init__(self, endpoints: Endpoints, url: str, retry_s: float) -> None:
        """Begin without any.

        Args:
            endpoints: endpoints of the single server.
            url: its address, for messages.
            retry_s: seconds in which a request is tried again while the server is busy.
        """
        self._endpoints, self._url, self._retry_s = endpoints, url, retry_s
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `close`)
        self._places: dict[str, tuple[int, int]] = {}
        """Places of answers in the file, by request: first byte and number of bytes."""

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def get(self, key: str) -> bytes:
        """Return the body of an answer, as JSON."""
        start, size = self._places[key]
        return os.pread(self._file.fileno(), size, start)

    def forget(self, key: str) -> None:
        """Drop an answer, if it is there."""
        self._places.pop(key, None)

    def close(self) -> None:
        """Drop all."""
        self._file.close()

    async def read(self, batch: Mapping[str, Any], keys: Collection[str]) -> Reading:
        """Read the files that a batch names now.

        Args:
            batch: a batch that has ended.
            keys: requests whose rows count.
        """
        reading = Reading()
        for kind in ("output_file_id", "error_file_id"):
            if not (file_id := batch.get(kind)):
                continue

            async def copy(client: AsyncOpenAI, file_id: str = str(file_id)) -> str:
                return await self._copy(client, file_id, keys, reading)

            try:
                fault = await self._endpoints.ask(copy, home=0, retry_s=self._retry_s)
            except RefusedError as error:
                fault = str(error)
            except RequestFailed as error:  # it was tried again for long enough
                fault, reading.may_pass = str(error), False
            reading.faults += [f"{kind} {file_id}: {fault}"] if fault else []
        return reading

    async def _copy(
        self, client: AsyncOpenAI, file_id: str, keys: Collection[str], reading: Reading
    ) -> str:
        """Copy a file of answers to ours; return what is wrong with it, or an empty text."""
        places: dict[str, tuple[int, int]] = {}
        num_rows, fault = 0, ""
        async for row in calls.rows(client, file_id):
            key = None if row is None else row.get("custom_id")
            if row is None or not isinstance(key, str):
                words = "a line is no row of a batch" if row is None else error_words(row)
                fault = fault or self._endpoints.shown(words)
                continue
            num_rows += 1
            if key not in keys or key in self:
                continue
            response = row.get("response")
            response = response if isinstance(response, dict) else {}
            status, body = response.get("status_code"), response.get("body")
            error = row.get("error") or (error_in(body) if isinstance(body, dict) else None)
            if status == 200 and isinstance(body, dict) and not error:
                content = json.dumps(body, separators=(",", ":")).encode()
                places[key] = (self._file.seek(0, os.SEEK_END), self._file.write(content))
            else:
                self._note_error(key, error or body, status, reading)
        self._file.flush()
        self._places |= places
        reading.num_rows += num_rows
        return fault or ("" if num_rows else "it is empty")

    def _note_error(self, key: str, error: Any, status: Any, reading: Reading) -> None:
        """Sort the error of a row by whether its request was processed."""
        inner = error.get("error", error) if isinstance(error, dict) else error
        status = error_status(inner, status if type(status) is int else 200)
        words = error_words(inner)
        if is_passing(status, inner):
            reading.unprocessed[key] = words
        else:
            reading.failures[key] = self._endpoints.refusal(self._url, status, inner, words)
