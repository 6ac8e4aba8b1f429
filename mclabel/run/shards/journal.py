"""Journals: finished work on a block, stored so that a later attempt at the block can reuse it.

Each flush creates a file `journals/BLOCK/ATTEMPT.NUMBER.jsonl.gz`, which never changes. Each entry,
a piece of work such as one rollout, is one line; the task defines its content and its key. If two
entries have the same key, the first one in the order of file names counts. A block's journals are
deleted once the block is committed.
"""

from __future__ import annotations

import gzip
import json
import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.run.shards.store import Store

logger = logging.getLogger(__name__)

FORMAT = 1
"""Version of the file format."""
FOLDER = "journals"

Line = Mapping[str, Any]
"""Content of one line of a journal, JSON-serialisable."""
Key = tuple[str | int, ...]
"""Key of an entry, unique within its block."""


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One piece of a task's work that was read from a journal."""

    key: Key
    """Key that identifies the piece of work within its block."""
    content: Any
    num_tokens: int
    """Number of tokens that were sampled for the piece of work."""


ReadEntry = Callable[[Line], JournalEntry]
"""Function of a task that parses a line which the task has written. It raises LookupError,
TypeError, ValueError or AttributeError for an invalid line."""


def write_journal(
    store: Store, block_id: str, attempt: str, number: int, lines: Iterable[Line]
) -> None:
    """Write one file of an attempt's journal.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique id of the attempt at the block.
        number: index of the file among the attempt's files, from 0.
        lines: lines for the attempt's work since its last file.
    """
    header = {"format": FORMAT, "block": block_id, "attempt": attempt}
    written = (
        json.dumps(line, ensure_ascii=True, separators=(",", ":")) for line in (header, *lines)
    )
    content = gzip.compress("\n".join(written).encode(), compresslevel=3, mtime=0)
    store.create(f"{FOLDER}/{block_id}/{attempt}.{number:05d}.jsonl.gz", content)


def read_journal(store: Store, block_id: str, read_entry: ReadEntry) -> dict[Key, JournalEntry]:
    """Return all entries that earlier attempts at a block have written, by key.

    A damaged file is ignored with a warning, and its work is done again.

    Args:
        store: the run's store.
        block_id: id of the block.
        read_entry: parser of the task's lines.
    """
    entries: dict[Key, JournalEntry] = {}
    for name in store.names(f"{FOLDER}/{block_id}"):
        content = store.read(name)
        if content is None:
            continue  # another attempt has just committed the block and deletes its journals
        try:
            parsed = parse_journal(content, read_entry)
        except ValueError as error:
            logger.warning(
                "%s/%s: damaged, or written by another version of mclabel (%s). It is ignored, "
                "and its work is done again",
                store.location,
                name,
                error,
            )
            continue
        for entry in parsed:
            entries.setdefault(entry.key, entry)
    return entries


def parse_journal(content: bytes, read_entry: ReadEntry) -> list[JournalEntry]:
    """Return the entries in one file of a journal.

    Args:
        content: bytes of the file.
        read_entry: parser of the task's lines.

    Raises:
        ValueError: the file is damaged (gzip has a checksum), or has another format.
    """
    try:
        return [read_entry(line) for line in parse_journal_lines(content)]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def parse_journal_lines(content: bytes) -> Iterator[Line]:
    """Yield the lines of one file of a journal, without its header.

    Raises:
        ValueError: the file is damaged, or has another format.
    """
    try:
        header, *lines = map(json.loads, gzip.decompress(content).decode().splitlines())
        file_format = header.get("format")
    except (OSError, EOFError, zlib.error, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if file_format != FORMAT:
        raise ValueError(f"format {file_format!r}, must be {FORMAT}")
    yield from lines


def list_journaled_blocks(store: Store) -> set[str]:
    """Return the ids of the blocks that have journals."""
    return {name.split("/")[1] for name in store.names(FOLDER)}


def delete_journal(store: Store, block_id: str) -> None:
    """Delete a block's journals."""
    folder = f"{FOLDER}/{block_id}"
    for name in store.names(folder):
        store.delete(name)
    store.delete_folder(folder)
    store.delete_folder(FOLDER)


class BlockJournal:
    """The journal of one attempt at a block, and the entries of earlier attempts.

    `add` and `take` must be called in the event loop; `read` and `flush` may run in threads.
    """

    def __init__(self, store: Store, block_id: str, attempt: str, read_entry: ReadEntry) -> None:
        """Start an empty journal; `read` loads the entries of earlier attempts.

        Args:
            store: the run's store.
            block_id: id of the block.
            attempt: unique id of this attempt at the block.
            read_entry: parser of the task's lines.
        """
        self._store, self._block_id, self._read_entry = store, block_id, read_entry
        self.attempt = attempt
        self._earlier: dict[Key, JournalEntry] = {}
        self._new: list[Callable[[], Line]] = []
        self._flushing = threading.Lock()
        self.num_files = 0
        """Number of files that this attempt has written."""
        self.num_replayed = 0
        """Number of entries taken from earlier attempts."""
        self.num_replayed_tokens = 0
        """Number of tokens that were sampled for the entries taken from earlier attempts."""

    def read(self) -> None:
        """Load the entries of earlier attempts."""
        self._earlier = read_journal(self._store, self._block_id, self._read_entry)

    def take(self, key: Key) -> Any | None:
        """Remove an entry of an earlier attempt, and return its content; None if there is none."""
        entry = self._earlier.pop(key, None)
        if entry is None:
            return None
        self.num_replayed += 1
        self.num_replayed_tokens += entry.num_tokens
        return entry.content

    def add(self, line: Callable[[], Line]) -> None:
        """Record a piece of work that this attempt has done.

        Args:
            line: function that returns the entry's line. `flush` calls it outside the event loop.
                Most blocks are committed before their first flush, and then it is never called.
        """
        self._new.append(line)

    def flush(self) -> None:
        """Write the entries that were added since the last flush to a new file."""
        with self._flushing:
            due, self._new = self._new, []
            if not due:
                return
            try:
                lines = (line() for line in due)
                write_journal(self._store, self._block_id, self.attempt, self.num_files, lines)
            except BaseException:  # the next flush writes these entries
                self._new[:0] = due
                raise
            self.num_files += 1

    def delete(self) -> None:
        """Delete the block's journals of all attempts."""
        delete_journal(self._store, self._block_id)
