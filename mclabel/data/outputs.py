"""Places on this machine to which results are written, tried before the work is done."""

from __future__ import annotations

import uuid
from pathlib import Path

from mclabel.errors import ConfigError


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
    _try_to_write(path.parent, place, key, make=True)
    return path


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
            f"{key}{place}: cannot be written ({error.strerror}). Give a place where you may write"
        ) from error
