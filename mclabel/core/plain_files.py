"""Bounds on what is read of others' data (plain files alone, and so much of them); whole files.

A pipe that nobody writes to is waited for, and a device such as /dev/zero has no end.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from mclabel.core.errors import MclabelError

MAX_ENTRIES = 100_000
"""Entries of a model's folder that are looked at: those that are loaded lie at its top."""


def check_plain(path: str | Path, error: type[MclabelError], *, name: str = "") -> None:
    """See that what is at a path, links followed, is a plain file, a folder or nothing.

    Args:
        path: path of the file.
        error: type of what is raised.
        name: name of what the file belongs to, for the message.

    Raises:
        MclabelError: it is a pipe, a device or a socket.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return  # reading the file will raise the same error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise error(
            f"{name or path}: {Path(path).name} is {_kind(mode)}, and only plain files are read. "
            "Remove it, or copy the whole folder again"
        )


def check_plain_folder(
    folder: str | Path, error: type[MclabelError], *, name: str = "", depth: int = 1
) -> None:
    """See that a folder holds plain files and folders alone.

    Args:
        folder: path of an existing folder.
        error: type of what is raised.
        name: name of the folder, for the message; empty takes its path.
        depth: levels of folders below it that are looked into.

    Raises:
        MclabelError: names what is something else.
    """
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MAX_ENTRIES:
                return
            check_plain(entry.path, error, name=name or str(folder))
            if depth and entry.is_dir():
                check_plain_folder(entry.path, error, name=name, depth=depth - 1)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that is there whole, and on the disk, or not at all; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "a pipe"),
        (stat.S_ISCHR, "a device"),
        (stat.S_ISBLK, "a device"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((words for is_it, words in kinds if is_it(mode)), "no file")


MAX_ROW = 1 << 24
"""Bytes of a row, in CSV characters: more than any model's context, and less than hurts."""
