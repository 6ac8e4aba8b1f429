"""What is kept of batches: requests that were not sent yet, and what was sent, for after a kill.

    batches/NAME.asked.json    the file on the server and the ids of its requests; before the batch
    batches/NAME.batch.json    the id that the server gave the batch

Names sort by time, so of several batches that hold a request the last one counts.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.core.errors import EngineError
from mclabel.engines.loading import Keep

FOLDER = "batches"
"""Of a run."""
ASKED, BATCH = ".asked.json", ".batch.json"


def new_name() -> str:
    """A name for a batch, behind all earlier ones."""
    return f"{time.time_ns():020d}-{secrets.token_hex(6)}"


class Gathered:
    """Requests that were not sent yet; their lines are in a file that no kill leaves behind."""

    def __init__(self) -> None:
        """Begin with none."""
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 (its owner closes it)
        self.lines: dict[str, tuple[int, int]] = {}
        """Where the line of each request stands: its first byte, and their number."""
        self.num_bytes = 0

    def add(self, key: str, line: bytes) -> None:
        """Add a request's line."""
        self.file.write(line)
        self.lines[key] = (self.num_bytes, len(line))
        self.num_bytes += len(line)

    def without(self, keys: set[str]) -> Gathered:
        """The same requests but for some."""
        others = Gathered()
        self.file.flush()
        for key, (start, size) in self.lines.items():
            if key not in keys:
                others.add(key, os.pread(self.file.fileno(), size, start))
        self.file.close()
        return others


class Records:
    """The batches of a run, as all its processes have written them down."""

    def __init__(self, keep: Keep) -> None:
        """Begin without knowing any.

        Args:
            keep: the files of the run.
        """
        self._keep = keep
        self._known: set[str] = set()

    async def news(self) -> dict[str, str]:
        """Batches that were not known here, by the ids of their requests.

        Raises:
            EngineError: a record is damaged.
        """
        found: dict[str, str] = {}
        for path in await asyncio.to_thread(self._keep.names, FOLDER):
            name = path.removeprefix(f"{FOLDER}/").removesuffix(ASKED)
            if path.endswith(ASKED) and name not in self._known:
                self._known.add(name)
                found |= dict.fromkeys((await self.asked(name))[1], name)
        return found

    async def asked(self, name: str) -> tuple[str, list[str]]:
        """A batch's file on the server, and the ids of its requests."""
        record = await self._read(name + ASKED)
        file, requests = record.get("file"), record.get("requests")
        if not isinstance(file, str) or not isinstance(requests, list):
            raise _damaged(name + ASKED)
        return file, requests

    async def batch_id(self, name: str) -> str | None:
        """What the server calls a batch; None where it is not known whether it was made."""
        found = (await self._read(name + BATCH)).get("id")
        return found if isinstance(found, str) else None

    async def note_asked(self, name: str, file: str, requests: Sequence[str]) -> None:
        """Write down what a batch that is to be made holds."""
        self._known.add(name)
        await self._write(name + ASKED, {"file": file, "requests": requests})

    async def note_batch(self, name: str, batch_id: str) -> None:
        """Write down that a batch was made."""
        await self._write(name + BATCH, {"id": batch_id})

    async def delete(self, name: str) -> None:
        """Forget a batch."""
        for kind in (BATCH, ASKED):
            await asyncio.to_thread(self._keep.delete, f"{FOLDER}/{name}{kind}")

    async def _write(self, name: str, content: Mapping[str, Any]) -> None:
        data = json.dumps(content, separators=(",", ":")).encode()
        await asyncio.to_thread(self._keep.create, f"{FOLDER}/{name}", data)

    async def _read(self, name: str) -> dict[str, Any]:
        content = await asyncio.to_thread(self._keep.read, f"{FOLDER}/{name}")
        try:
            found = json.loads(content or b"{}")
        except ValueError as error:
            raise _damaged(name) from error
        if not isinstance(found, dict):
            raise _damaged(name)
        return found


def _damaged(name: str) -> EngineError:
    return EngineError(
        f"{FOLDER}/{name} of the run: is damaged. Restore it from a copy, or delete it: then its "
        "requests are asked, and paid, again"
    )
