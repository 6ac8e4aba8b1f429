"""Readers of files, of data sets of the Hugging Face hub, and of what a plain function gives.

A function is named as `problems.source=my_package.mine:read`. It takes one text, `place`: the
source if `problems.kind` names the function, else empty. It returns or yields rows, mappings with a
problem and its gold, and is called anew each time that the problems are gone through: it must give
the same rows each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from mclabel.core.components import find_target
from mclabel.core.errors import DataError
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


class HubReader:
    """Rows of a data set of the Hugging Face hub, or of a local one that `datasets` understands."""

    class Settings(RowSettings):
        """A Hugging Face data set, `hf:NAME` or `hf:FOLDER`."""

        split: str = "test"
        """Split of the problems."""
        subset: str | None = None
        """Subset of the dataset, if it has several."""

    def __init__(self, settings: Settings) -> None:
        """Load the data set, from the hub or from the cache.

        Args:
            settings: name the data set.

        Raises:
            DataError: there is none of that name, or not that split.
        """
        from datasets import load_dataset
        from datasets.exceptions import DatasetsError
        from huggingface_hub.errors import HfHubHTTPError

        name = settings.place.removeprefix("//")
        try:
            self._rows = load_dataset(name, settings.subset, split=settings.split)
        except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
            raise DataError(
                f"{settings.source}: cannot load split {settings.split!r}, subset "
                f"{settings.subset!r} ({error}). Check the name, log in with `hf auth login` if it "
                "is gated, or give a local file"
            ) from error

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Every row with its number."""
        return enumerate(self._rows, 1)


class FunctionReader:
    """Calls a function for its rows."""

    class Settings(RowSettings):
        """A function that reads."""

    def __init__(self, settings: Settings) -> None:
        """Find the function.

        Args:
            settings: whose `kind` is its `module:function`.
        """
        self._read: Callable[[str], Iterable[Any]] = find_target("readers", settings.kind)
        self._place = settings.place

    def rows(self) -> Iterable[tuple[int, Any]]:
        """What the function gives, numbered."""
        found: Any = self._read(self._place)
        # If it is not iterable, `Boundary.each` raises the error.
        return enumerate(found, 1) if isinstance(found, Iterable) else found
