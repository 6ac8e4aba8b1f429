"""Records an engine's shared memory in /dev/shm, so that the next engine frees it after a kill.

vLLM's processes share memory, and new weights pass through a file there; a killed process removes
neither. So every engine locks a folder beside them, which lists its shared memory and holds its
files. A folder without a lock belongs to an engine that died.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import select
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Self

from mclabel.core.stop import free_orphaned, shared_memory, users_of

logger = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")
NOTE_S = 0.25
"""Between two looks at what an engine that loads has mapped."""
_PREFIX = "mclabel_"
_LOCK, _SEGMENTS = "lock", "segments"
_SEGMENT = re.compile(r"psm_\w+")
MIB = 2**20


class EngineMemory:
    """The record of one engine's memory; there is none where /dev/shm takes no files."""

    def __init__(self, memory: Path = MEMORY) -> None:
        """Lock a new folder.

        Args:
            memory: folder that the record is kept in, beside what it lists.
        """
        self.folder: Path | None = None
        """Folder of the engine, which is removed with it; None where there is none."""
        self._lock = -1
        if not memory.is_dir():
            return
        try:
            # It gets its name once it is locked: until then, no other engine looks at it.
            unnamed = Path(mkdtemp(prefix=f".{_PREFIX}", dir=memory))
            self._lock = os.open(unnamed / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.folder = unnamed.rename(memory / unnamed.name.removeprefix("."))
        except OSError as error:
            logger.warning(
                "%s: cannot be written (%s), so that memory of this engine will not be freed if "
                "its process is killed",
                memory,
                error,
            )

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Record the shared memory that child processes map meanwhile; an engine may be killed."""
        ended = threading.Event()

        def note() -> None:
            while not ended.wait(NOTE_S):
                self._note()

        thread = threading.Thread(target=note, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._note()

    def close(self) -> None:
        """Free the recorded shared memory that no child process has mapped; remove the folder."""
        if self.folder is not None:
            free_orphaned(_listed(self.folder))
            shutil.rmtree(self.folder)
            self.folder = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _note(self) -> None:
        if self.folder is not None and (paths := shared_memory()):
            unnamed = self.folder / f".{_SEGMENTS}"
            unnamed.write_text("".join(f"{path.name}\n" for path in sorted(paths)))
            unnamed.rename(self.folder / _SEGMENTS)


def free_left(memory: Path = MEMORY) -> None:
    """Free the shared memory that killed engines of this user have left.

    Shared memory that a process still has mapped stays, and its record with it.

    Args:
        memory: folder of the records.
    """
    for folder in memory.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # another engine that starts has just freed it
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with open(folder / _LOCK, "rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # its engine lives
                _free(folder)


def _free(folder: Path) -> None:
    memory, paths = folder.parent, _listed(folder)
    num_bytes = sum(path.stat().st_size for path in [*paths, *folder.rglob("*")])
    if users := users_of(paths):
        logger.warning(
            "processes %s of an engine whose job was killed still run, and hold %d MiB in %s. "
            "End them: kill %s",
            ", ".join(map(str, users)),
            num_bytes // MIB,
            memory,
            " ".join(map(str, users)),
        )
        return
    for path in paths:
        path.unlink(missing_ok=True)
    shutil.rmtree(folder)
    logger.info("freed %d MiB in %s that a killed engine had left", num_bytes // MIB, memory)


def _listed(folder: Path) -> list[Path]:
    """Return the shared memory that a record names, as far as it is there."""
    listed = folder / _SEGMENTS
    names = listed.read_text().splitlines() if listed.is_file() else []
    paths = [folder.parent / name for name in names if _SEGMENT.fullmatch(name)]
    return [path for path in paths if path.is_file() and path.stat().st_uid == os.geteuid()]


# Ends vLLM's processes with the process that started their engine, also where that is killed.
#
# vLLM's engine process waits for requests, and does not notice that nobody is left to send one: it
# would hold its memory until somebody ends it. vLLM takes a class that it adds to the class of its
# workers (`worker_extension_cls`). A worker lives in the engine process, or is its child.

OWNER = "MCLABEL_ENGINE_OWNER"
"""Environment variable with the id of the process that started the engine."""


class EndsWithOwner:
    """A base of vLLM's workers: one that is made watches the owner from then on."""

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Begin to watch, before the worker loads its model."""
        end_with(int(os.environ[OWNER]))
        return super().__new__(cls)


def end_with(owner: int) -> None:
    """Kill this process and the engine's as soon as their owner has ended.

    Args:
        owner: id of a process that has started this one, or the one that has.
    """
    if owner == os.getpid() or not hasattr(os, "pidfd_open"):  # Linux alone has that
        return
    engine = os.getppid()
    try:
        ended = os.pidfd_open(owner)
    except ProcessLookupError:
        _end(engine)
    except OSError as error:
        logger.warning("if process %d is killed, vLLM's processes stay (%s)", owner, error)
        return
    watch = select.poll()
    watch.register(ended, select.POLLIN)

    def wait() -> None:
        watch.poll()
        _end(engine)

    threading.Thread(target=wait, name="owner", daemon=True).start()


def _end(engine: int) -> None:
    if os.getppid() == engine:  # where this process is its own engine, it was the owner
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
