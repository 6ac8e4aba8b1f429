"""Keeps an index up to date with runs that are still being written."""

from __future__ import annotations

import threading

import duckdb

from mclabel.errors import ShardError
from mclabel.report.viewer.index import Index

EVERY_S = 2.0


class Follower:
    """A thread that looks for new shards."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="follow", daemon=True)
        self.fault: str | None = None
        """Why the runs can no longer be followed."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End, when the shard being read is read."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                self._index.refresh()
                self.fault = None
            except (ShardError, OSError, duckdb.Error) as error:
                self.fault = str(error)
            self._ended.wait(EVERY_S)
