"""Reads problems from Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mclabel.core.errors import DataError
from mclabel.data.readers.base import RowSettings


class HubReader:
    """Rows of a data set of the Hugging Face hub, or of a local one that `datasets` understands."""

    class Settings(RowSettings):
        """A Hugging Face data set, `hf:NAME` or `hf:FOLDER`."""

        split: str = "test"
        """Split of the dataset."""
        subset: str | None = None
        """Subset of the dataset (its configuration on the hub), if it has several."""

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
