"""A user's file by URL: copied once to this machine, and read from there.

Files are gone through several times, so a copy is cheaper than a stream, and all passes see the
same content. It is removed when the process ends.
"""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from mclabel.core.errors import DataError, ShardError


def local_path(source: str) -> Path:
    """Where a file lies on this machine.

    Args:
        source: path, or URL such as `s3://bucket/problems.jsonl`.

    Raises:
        DataError: there is no such file, or it cannot be fetched.
    """
    if "://" in source:
        return _fetched(source)
    path = Path(source)
    if path.is_dir():
        raise DataError(
            f"{source}: is a folder, must be a .jsonl, .parquet or .csv file. A folder that "
            f"`datasets` understands is read as hf:{source}"
        )
    if not path.is_file():
        raise DataError(f"{source}: no such file. Give an existing .jsonl, .parquet or .csv file")
    return path


def read_text(source: str) -> str:
    """The text of a file.

    Args:
        source: path or URL.

    Raises:
        DataError: there is no such file, or it holds no UTF-8.
    """
    try:
        return local_path(source).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{source}: cannot be read as a text ({error})") from error


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="mclabel-inputs-")


@cache
def _fetched(url: str) -> Path:
    from mclabel.run.shards.store import Store

    folder, _, name = url.rpartition("/")
    if not name or folder.endswith(":/"):
        raise DataError(f"{url}: must name a file, as in s3://bucket/problems.jsonl")
    path = Path(tempfile.mkdtemp(dir=_folder().name)) / name
    try:
        found = Store(folder).fetch(name, path)
    except ShardError as error:
        raise DataError(f"{url}: cannot be read: {error}") from error
    if not found:
        raise DataError(f"{url}: no such file")
    return path
