"""Journals: the work of an attempt at a block, kept for the attempt after it.

Each flush creates `journals/BLOCK/ATTEMPT.NUMBER.jsonl.gz`, which never changes. The task defines
the entries and their keys; of two entries with one key the first in the order of names counts. A
block's journals are deleted once it is committed.
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
FOLDER = "journals"

Line = Mapping[str, Any]
"""Content of one line of a journal, JSON-serialisable."""
Key = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class JournalEntry:
    """One piece of a task's work, read from a journal."""

    key: Key
    """Names the piece within the block."""
    content: Any
    num_tokens: int
    """Tokens that the piece has cost."""


ReadEntry = Callable[[Line], JournalEntry]
"""Reads a line that the task has written. A line of another form raises LookupError, TypeError,
ValueError or AttributeError."""


def write_journal(
    store: Store, block_id: str, attempt: str, number: int, lines: Iterable[Line]
) -> None:
    """Write one file of an attempt's journal.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique to the attempt at the block.
        number: counts the attempt's files.
        lines: the attempt's work since its last file.
    """
    header = {"format": FORMAT, "block": block_id, "attempt": attempt}
    written = (
        json.dumps(line, ensure_ascii=True, separators=(",", ":")) for line in (header, *lines)
    )
    content = gzip.compress("\n".join(written).encode(), compresslevel=3, mtime=0)
    store.create(f"{FOLDER}/{block_id}/{attempt}.{number:05d}.jsonl.gz", content)


def read_journal(store: Store, block_id: str, read_entry: ReadEntry) -> dict[Key, JournalEntry]:
    """Return the entries that all earlier attempts at a block have written, by key.

    A journal that is damaged is left out, with a warning: what it holds is done again.

    Args:
        store: the run's store.
        block_id: id of the block.
        read_entry: reads a line that the task has written.
    """
    entries: dict[Key, JournalEntry] = {}
    for name in store.names(f"{FOLDER}/{block_id}"):
        content = store.read(name)
        if content is None:
            continue  # an attempt that has just committed the block deletes them
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

    Raises:
        ValueError: it is damaged (gzip has a checksum), or of another format.
    """
    try:
        return [read_entry(line) for line in journal_lines(content)]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def journal_lines(content: bytes) -> Iterator[Line]:
    """Yield the lines of one file of a journal.

    Raises:
        ValueError: the file is damaged, or of another format.
    """
    try:
        header, *lines = map(json.loads, gzip.decompress(content).decode().splitlines())
        file_format = header.get("format")
    except (OSError, EOFError, zlib.error, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    if file_format != FORMAT:
        raise ValueError(f"format {file_format!r}, must be {FORMAT}")
    yield from lines


def journaled_blocks(store: Store) -> set[str]:
    """Return the ids of the blocks of which there are journals."""
    return {name.split("/")[1] for name in store.names(FOLDER)}


def delete_journal(store: Store, block_id: str) -> None:
    """Remove a block's journals."""
    folder = f"{FOLDER}/{block_id}"
    for name in store.names(folder):
        store.delete(name)
    store.delete_folder(folder)
    store.delete_folder(FOLDER)


class BlockJournal:
    """Entries of one block, by key.

    Adding and taking belong to the event loop; reading and flushing may be done in threads.
    """

    def __init__(self, store: Store, block_id: str, attempt: str, read_entry: ReadEntry) -> None:
        """Begin an empty journal; `read` fills it with what earlier attempts have left.

        Args:
            store: the run's store.
            block_id: id of the block.
            attempt: unique to this attempt at it.
            read_entry: reads a line that the task has written.
        """
        self._store, self._block_id, self._read_entry = store, block_id, read_entry
        self.attempt = attempt
        self._earlier: dict[Key, JournalEntry] = {}
        self._new: list[Callable[[], Line]] = []
        self._flushing = threading.Lock()
        self.num_files = 0
        """Files that this attempt has written."""
        self.num_replayed = 0
        """Entries taken from earlier attempts."""
        self.num_replayed_tokens = 0
        """Tokens that these entries have cost."""

    def read(self) -> None:
        """Read what earlier attempts have left."""
        self._earlier = read_journal(self._store, self._block_id, self._read_entry)

    def take(self, key: Key) -> Any | None:
        """Return the content of an entry of an earlier attempt, once; None if there is none."""
        entry = self._earlier.pop(key, None)
        if entry is None:
            return None
        self.num_replayed += 1
        self.num_replayed_tokens += entry.num_tokens
        return entry.content

    def add(self, line: Callable[[], Line]) -> None:
        """Record a piece of work that this attempt has done.

        Args:
            line: called when the journal is written, off the event loop; most blocks are done
                before that.
        """
        self._new.append(line)

    def flush(self) -> None:
        """Write what is new since the last time."""
        with self._flushing:
            due, self._new = self._new, []
            if not due:
                return
            try:
                lines = (line() for line in due)
                write_journal(self._store, self._block_id, self.attempt, self.num_files, lines)
            except BaseException:  # nothing is lost: the next flush writes it
                self._new[:0] = due
                raise
            self.num_files += 1

    def delete(self) -> None:
        """Remove the block's journals, those of all attempts."""
        delete_journal(self._store, self._block_id)
