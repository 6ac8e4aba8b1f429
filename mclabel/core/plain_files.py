"""Limits for reading third-party files (only regular files, up to a size), and atomic writes.

Reading a pipe without a writer would block for ever, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mclabel.core.errors import MclabelError

MAX_ENTRIES = 100_000
"""Maximum number of entries of a model's folder that are checked. Entries beyond it do not matter,
because the files that are loaded are at the folder's top level."""


def check_plain(path: str | Path, error: type[MclabelError], *, name: str = "") -> None:
    """Raise an error unless a path, after links, is a regular file, a folder or does not exist.

    Args:
        path: path of the file.
        error: type of the error to raise.
        name: name of the folder or model that the file belongs to, for the message; if empty, the
            message names the path.

    Raises:
        MclabelError: the path is a pipe, a device or a socket.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # reading the file will raise the same error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(
            f"{name or path}: {Path(path).name} is {_describe_file_kind(mode)}, but must be a "
            "regular file. Replace it by the original file, or remove it"
        )


def check_plain_folder(
    folder: str | Path, error: type[MclabelError], *, name: str = "", depth: int = 1
) -> None:
    """Raise an error unless a folder contains only regular files and folders.

    Args:
        folder: path of an existing folder.
        error: type of the error to raise.
        name: name of the folder, for the message; if empty, the message names its path.
        depth: number of levels of subfolders that are checked too.

    Raises:
        MclabelError: an entry is a pipe, a device or a socket. The message names the entry.
    """
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_ENTRIES:
                return
            check_plain(entry.path, error, name=name or str(folder))
            if depth and entry.is_dir():
                check_plain_folder(entry.path, error, name=name, depth=depth - 1)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically and sync it to the disk; create its folder if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _describe_file_kind(mode: int) -> str:
    kind_descriptions = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next(
        (description for has_kind, description in kind_descriptions if has_kind(mode)), "no file"
    )


MAX_ROW = 1 << 24
"""Maximum size of a row of input data in bytes, or in characters for CSV. It exceeds any model's
context, and a row of this size fits into memory."""
