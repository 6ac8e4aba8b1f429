"""Reads problems from a user's files."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from mclabel.data.readers.base import RowSettings
from mclabel.data.readers.rows import scan_rows


class FileReader:
    """Rows of a .jsonl, .json, .parquet or .csv file, local or by URL."""

    class Settings(RowSettings):
        """A file of problems."""

        reads_files: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        """Prepare to read; the file is opened when its rows are asked for.

        Args:
            settings: name the file.
        """
        self._source = settings.source

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Every row, readable or not, with its number: the line in JSON Lines, else the row."""
        return scan_rows(self._source)
