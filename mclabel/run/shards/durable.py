"""Creates files on a local or network folder that appear whole, once, and outlast a power loss.

The content is synced before the file gets its name by an exclusive link, and the folder is synced
after it. With `O_TMPFILE` (ext4, xfs, btrfs, tmpfs) a kill leaves nothing behind; elsewhere the
unnamed file waits under `.partial/`.
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
"""A partial file is written in seconds; an older one was left by a process that was killed."""
_TRIES = 5
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}


def create_durably(root: Path, name: str, content: bytes) -> bool:
    """Create a file; False if one of that name exists, which is left as it is.

    Args:
        root: folder that exists.
        name: relative to it; folders on the way are made.
        content: the whole file.

    Raises:
        OSError: no space, no permission.
    """
    path = root / name
    for _ in range(_TRIES):
        try:
            return _create(root, path, content)
        except FileNotFoundError:
            if not root.is_dir():
                raise
            # Else another process has just removed the folder, as it was empty: try again.
    return _create(root, path, content)


def _create(root: Path, path: Path, content: bytes) -> bool:
    _make_folder(path.parent, root)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        handle = _open_nameless(path.parent)
        if handle is None:
            return _create_by_partial(root, path, content)
        try:
            write_synced(handle, content)
            # Given a folder's handle, link follows the symlink that /proc has for the file.
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
    """Write a file in place of any of that name, at once and as a whole.

    Args:
        root: folder that exists.
        name: relative to it.
        content: read to its end.

    Raises:
        OSError: no space, no permission.
    """
    with _partial_file(root) as partial:
        with partial.open("xb") as file:
            shutil.copyfileobj(content, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, root / name)
    sync_folder((root / name).parent)


@contextmanager
def _partial_file(root: Path) -> Iterator[Path]:
    """Give the path of a file to write, which is gone at the end."""
    partial = root / PARTIAL / uuid.uuid4().hex
    partial.parent.mkdir(exist_ok=True)
    try:
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def sweep(root: Path) -> None:
    """Remove partial files that a kill has left."""
    for path in (root / PARTIAL).glob("*"):
        try:
            if time.time() - path.stat().st_mtime > _STALE_S:
                path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue  # its writer has just finished


def _create_by_partial(root: Path, path: Path, content: bytes) -> bool:
    with _partial_file(root) as partial:
        with partial.open("xb", buffering=0) as file:
            write_synced(file.fileno(), content)
        try:
            os.link(partial, path)
        except FileExistsError:
            return False
    sync_folder(path.parent)
    return True


def _open_nameless(folder: Path) -> int | None:
    """Open a file without a name; None where the file system has none."""
    if not hasattr(os, "O_TMPFILE"):
        return None
    try:
        return os.open(folder, os.O_WRONLY | os.O_TMPFILE, 0o666)
    except OSError as error:
        if error.errno in _NO_TMPFILE and folder.is_dir():
            return None
        raise


def write_synced(handle: int, content: bytes) -> None:
    """Write all of it to an open file, and put it on the disk."""
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]
    os.fsync(handle)


def _make_folder(folder: Path, root: Path) -> None:
    """Make a folder, and sync the ones in which a name is new."""
    missing = []
    while not folder.is_dir() and folder != root:
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Put the names of a folder's files on the disk, too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
