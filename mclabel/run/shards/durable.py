"""Creates files in a local or network folder atomically, exclusively and durably.

Other processes see a file only when it is complete, an existing file is never overwritten, and a
created file survives a power loss. The content is synced to disk before an exclusive link gives the
file its name, and then the folder is synced. With `O_TMPFILE` (ext4, xfs, btrfs, tmpfs) a killed
process leaves no partial file. On other file systems the partial file is under `.partial/`.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

PARTIAL = ".partial"
_STALE_S = 600.0
"""Age in seconds above which a partial file counts as left by a killed process. Writing a file
takes only seconds."""
_TRIES = 5
"""Maximum number of attempts to create a file if its folder is removed meanwhile."""
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
"""Error numbers by which a file system or kernel rejects `O_TMPFILE`."""


def create_durably(root: Path, name: str, content: bytes) -> bool:
    """Create a file; return False and change nothing if a file of this name exists.

    Args:
        root: existing folder.
        name: path of the file relative to `root`; missing parent folders are created.
        content: content of the file.

    Raises:
        OSError: the file cannot be written, for example for lack of space or permission.
    """
    path = root / name
    for _ in range(_TRIES):
        try:
            return _create_file(root, path, content)
        except FileNotFoundError:
            if not root.is_dir():
                raise
            # Another process has just removed the parent folder because it was empty: try again.
    return _create_file(root, path, content)


def _create_file(root: Path, path: Path, content: bytes) -> bool:
    _make_folder(path.parent, root)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        handle = _open_unnamed(path.parent)
        if handle is None:
            return _create_via_partial_file(root, path, content)
        try:
            write_synced(handle, content)
            # os.link follows the symlink in /proc only if it is given a folder's handle.
            os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=folder, follow_symlinks=True)
        except FileExistsError:
            return False
        finally:
            os.close(handle)
        os.fsync(folder)
        return True
    finally:
        os.close(folder)


def replace_durably(root: Path, name: str, content: IO[bytes]) -> None:
    """Write a file atomically, replacing any file of the same name.

    Args:
        root: existing folder.
        name: path of the file relative to `root`.
        content: stream that is read to its end.

    Raises:
        OSError: the file cannot be written, for example for lack of space or permission.
    """
    with _open_partial_path(root) as partial:
        with partial.open("xb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, root / name)
    sync_folder((root / name).parent)


@contextmanager
def _open_partial_path(root: Path) -> Iterator[Path]:
    """Yield the path of a partial file to write; afterwards this path is removed."""
    partial = root / PARTIAL / uuid.uuid4().hex
    partial.parent.mkdir(exist_ok=True)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def delete_partial_files(root: Path) -> None:
    """Remove partial files that killed processes have left."""
    for path in (root / PARTIAL).glob("*"):
        try:
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue  # the process that wrote this file has just finished


def _create_via_partial_file(root: Path, path: Path, content: bytes) -> bool:
    with _open_partial_path(root) as partial:
        with partial.open("xb", buffering=0) as file:
            write_synced(file.fileno(), content)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def _open_unnamed(folder: Path) -> int | None:
    """Open a file without a name; return None if the file system does not support such files."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno in _NO_TMPFILE and folder.is_dir():
            return None
        raise


def write_synced(handle: int, content: bytes) -> None:
    """Write the complete content to an open file, and sync the file to disk."""
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)


def _make_folder(folder: Path, root: Path) -> None:
    """Create a folder and its missing parents, and sync each folder that has a new entry."""
    missing = []
    while not folder.is_dir() and folder != root:
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Sync a folder to disk, so that the names of its files are durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
