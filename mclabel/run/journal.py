"""The journal of one attempt at a block: what it takes from earlier ones, and what it adds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from mclabel.run.shards.journal import (
    JournalEntry,
    Key,
    Line,
    ReadEntry,
    delete_journal,
    read_journal,
    write_journal,
)
from mclabel.run.shards.store import Store


class BlockJournal:
    """Entries of one block, by key.

    Adding and taking belong to the event loop; reading and flushing may be done in threads.
    """

    def __init__(self, store: Store, block_id: str, attempt: str, read_entry: ReadEntry) -> None:
        """Begin an empty journal; `read` fills it with what earlier attempts have left.

        Args:
            store: the run's.
            block_id: of the block.
            attempt: unique to this attempt at it.
            read_entry: the task's.
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
        """The content of an entry that an earlier attempt has left, once; None if it left none."""
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
