"""A folder or bucket in which files are created whole, once, and never overwritten.

`create` is the one way anything is committed: an exclusive create of the complete bytes,
which `obstore` gives on a local folder and on S3 alike (of two writers one is refused; on a
local folder the file appears under its name only when it is whole). Logs alone are appended to.
"""

from __future__ import annotations

from pathlib import Path

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
from obstore.store import LocalStore, ObjectStore, from_url

from mclabel.errors import ShardError


class Store:
    """Files under one folder or URL."""

    def __init__(self, location: str, *, create: bool = False) -> None:
        """Args:
        location: local folder, or a URL such as `s3://bucket/prefix`.
        create: make the local folder if it is missing.

        Raises:
            ShardError: a local folder is missing, or the URL is not understood.
        """
        self.location = location
        self.is_local = "://" not in location
        if not self.is_local:
            try:
                self._store: ObjectStore = from_url(location)
            except (BaseError, ValueError) as error:
                raise ShardError(f"{location}: not a usable store URL: {error}") from error
            return
        path = Path(location)
        if path.exists() and not path.is_dir():
            raise ShardError(f"{location}: is a file, must be a folder")
        if not path.is_dir() and not create:
            raise ShardError(f"{location}: no such folder")
        self._store = LocalStore(path.absolute(), mkdir=create)

    def create(self, name: str, content: bytes) -> bool:
        """Write a whole file; False if one of that name exists, which is left as it is."""
        try:
            obstore.put(self._store, name, content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    def read(self, name: str) -> bytes | None:
        """The file's content, None if there is none."""
        try:
            return bytes(obstore.get(self._store, name).bytes())
        except (NotFoundError, FileNotFoundError):
            return None

    def names(self, folder: str) -> list[str]:
        """Names of all files under `folder`, sorted."""
        pages = obstore.list(self._store, prefix=folder)
        return sorted(meta["path"] for page in pages for meta in page)

    def append(self, name: str, content: bytes) -> None:
        """Add to a log, which one process writes; an object store takes the whole file again."""
        if self.is_local:
            with (Path(self.location) / name).open("ab") as file:
                file.write(content)
            return
        obstore.put(self._store, name, (self.read(name) or b"") + content, mode="overwrite")

    def delete(self, name: str) -> None:
        """Remove a file that may already be gone."""
        try:
            obstore.delete(self._store, name)
        except (NotFoundError, FileNotFoundError):
            return
