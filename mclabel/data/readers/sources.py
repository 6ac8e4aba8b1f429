"""Readers of problems from files, from data sets of the Hugging Face Hub and from functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from mclabel.core.components import find_target
from mclabel.core.errors import DataError
from mclabel.data.readers.base import RowSettings
from mclabel.data.readers.rows import scan_rows


class FileReader:
    """Reader of a .jsonl, .json, .parquet or .csv file, local or by URL."""

    class Settings(RowSettings):
        """Settings of a file of problems."""

        reads_files: ClassVar[bool] = True

    def __init__(self, settings: Settings) -> None:
        """Store the path of the file, which only `rows` opens.

        Args:
            settings: settings that name the file.
        """
        self._source = settings.source

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Return every row of the file with its number, from 1, as `scan_rows` does."""
        return scan_rows(self._source)


class HubReader:
    """Reader of a data set of the Hugging Face Hub, or of a local folder that `datasets` loads."""

    class Settings(RowSettings):
        """Settings of a Hugging Face data set, `hf:NAME` or `hf:FOLDER`."""

        split: str = "test"
        """Name of the split (part of the problems) that is read."""
        subset: str | None = None
        """Subset of the dataset, if it has several."""

    def __init__(self, settings: Settings) -> None:
        """Load the data set from the Hub or from the cache.

        Args:
            settings: settings that name the data set.

        Raises:
            DataError: there is no such data set or split.
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
        """Return every row with its number, from 1."""
        return enumerate(self._rows, 1)


class FunctionReader:
    """Reader that calls a user's function, such as `problems.source=my_package.mine:read`.

    The function takes one text. This is the whole source if the setting `problems.kind` names the
    function, else the part of the source after the function's name. The function returns or yields
    rows, which are mappings with a problem and its gold answer. It is called for each iteration,
    and must return the same rows each time.
    """

    class Settings(RowSettings):
        """Settings of a function that reads problems."""

    def __init__(self, settings: Settings) -> None:
        """Import the function.

        Args:
            settings: settings whose `kind` is the function's `module:function`.
        """
        self._read: Callable[[str], Iterable[Any]] = find_target("readers", settings.kind)
        self._place = settings.place

    def rows(self) -> Iterable[tuple[int, Any]]:
        """Return the function's rows with their numbers, from 1."""
        rows: Any = self._read(self._place)
        # `Boundary.each` raises the error if the result is not iterable.
        return enumerate(rows, 1) if isinstance(rows, Iterable) else rows
