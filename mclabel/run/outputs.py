"""Where jobs write: what lies where in an output, checked before hours of work are spent on it.

A folder that a job needs may be there as a file, or may not be writable. Found at the end, that
costs the work; found at the start, nothing.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from mclabel.core.errors import ConfigError, ShardError
from mclabel.run.places import RUN, Kind, check_file_free, check_free


def check_places(out: str, kind: Kind, *, key: str = "out=") -> None:
    """Refuse an output in which a folder or a file could not be written, or that holds another.

    A file is written into it, or into the folder above that is there, and deleted: some places are
    refused by nothing but that.

    Args:
        out: folder, which may be missing; of a run, also a URL, of which nothing is checked.
        kind: of what is to be written.
        key: how the user has given it, for messages.

    Raises:
        ShardError: names everything that stands in the way.
        ConfigError: it is a URL, or nothing can be written there.
    """
    if kind is RUN and "://" in out:
        return
    _local(out, key, "folder")
    check_free(out, kind, key)
    check_writable(out, folders=kind.folders, files=kind.all_files)
    _try_to_write(Path(out), out, key, make=False)


def check_writable(out: str, *, folders: Iterable[str] = (), files: Iterable[str] = ()) -> None:
    """Refuse a folder in which a folder or a file could not be written.

    Raises:
        ShardError: names everything that stands in the way.
    """
    faults = list(_faults(Path(out), folders, files))
    if faults:
        raise ShardError("\n".join(faults) + "\nMove that away, or choose another out=…")


def output_folder(place: str, key: str, *, make: bool = True) -> Path:
    """A local folder for results.

    Args:
        place: what the user has given.
        key: how, for messages: `-o` or `out=`.
        make: make it if it is missing; else only see that it could be made.

    Raises:
        ConfigError: it is a URL or a file, or nothing can be written there.
    """
    folder = _local(place, key, "folder")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{key}{place}: is a file, must be a folder")
    _try_to_write(folder, place, key, make=make)
    return folder


def output_file(place: str, key: str) -> Path:
    """A local file for results, which may be there. Its folder is made if it is missing.

    Args:
        place: what the user has given.
        key: how, for messages.

    Raises:
        ConfigError: it is a URL or a folder, or nothing can be written there.
    """
    path = _local(place, key, "file")
    if path.is_dir():
        raise ConfigError(f"{key}{place}: is a folder, must be a file")
    check_file_free(path, key)
    _try_to_write(path.parent, place, key, make=True)
    return path


def _faults(root: Path, folders: Iterable[str], files: Iterable[str]) -> Iterator[str]:
    whole = root.absolute()
    above = next(path for path in (whole, *whole.parents) if os.path.exists(path))
    if not above.is_dir():
        yield f"{above}: is a file, must be a folder"
        return
    if not _writable(above):
        yield f"{above}: is not writable"
    for folder in (root / name for name in folders):
        is_folder = os.path.isdir(folder)
        if os.path.lexists(folder) and not is_folder:  # a link to nothing is in the way, too
            yield f"{folder}: is a file, must be a folder"
        elif is_folder and not _writable(folder):
            yield f"{folder}: is not writable"
    for file in (root / name for name in files):
        if os.path.isdir(file):
            yield f"{file}: is a folder, must be a file"


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _local(place: str, key: str, what: str) -> Path:
    if not place or "://" in place:
        raise ConfigError(f"{key}{place or repr(place)}: must be a local {what}: give its path")
    return Path(place)


def _try_to_write(folder: Path, place: str, key: str, *, make: bool) -> None:
    try:
        if make:
            folder.mkdir(parents=True, exist_ok=True)
        while not folder.exists():
            folder = folder.parent
        trial = folder / f".{uuid.uuid4().hex}.partial"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise ConfigError(
            f"{key}{place}: cannot be written ({error.strerror}). Give a path where you have "
            "permission to write"
        ) from error
