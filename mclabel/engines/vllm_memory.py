"""Records an engine's shared memory in /dev/shm, so that the next engine can free it after a kill.

vLLM's processes share memory segments in /dev/shm, which a killed process does not remove. Every
engine therefore creates and locks a folder in /dev/shm, in which it lists its segments. A folder
that nobody locks belongs to an engine that died.
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

from mclabel.core.stop import (
    delete_orphaned_shared_memory,
    list_processes_mapping_files,
    list_shared_memory_files,
)

logger = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")
"""Folder of shared memory segments on Linux."""
NOTE_S = 0.25
"""Seconds between two updates of the list of shared memory segments while an engine loads."""
_PREFIX = "mclabel_"
"""Beginning of the names of engines' folders."""
_LOCK, _SEGMENTS = "lock", "segments"
"""Names of the files in an engine's folder: the locked file, and the list of segments."""
_SEGMENT = re.compile(r"psm_\w+")
"""Names of the shared memory segments that Python's multiprocessing creates."""
MIB = 2**20


class SharedMemoryRecord:
    """Record of one engine's shared memory. If /dev/shm cannot be written, nothing is recorded."""

    def __init__(self, memory: Path = MEMORY) -> None:
        """Create and lock the engine's folder.

        Args:
            memory: folder of the shared memory segments, in which the engine's folder is created.
        """
        self.folder: Path | None = None
        """The engine's folder, which `close` removes; None if it could not be created."""
        self._lock = -1
        if not memory.is_dir():
            return
        try:
            # The folder gets its final name once it is locked. Other engines ignore it until then.
            unnamed = Path(mkdtemp(prefix=f".{_PREFIX}", dir=memory))
            self._lock = os.open(unnamed / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.folder = unnamed.rename(memory / unnamed.name.removeprefix("."))
        except OSError as error:
            logger.warning(
                "%s: the folder cannot be written (%s), so the shared memory of this engine will "
                "not be freed if its process is killed",
                memory,
                error,
            )

    @contextmanager
    def record_segments_during(self) -> Iterator[None]:
        """Record the shared memory that child processes map within this context.

        The record is updated every `NOTE_S` seconds, because the process may be killed at any time.
        """
        ended = threading.Event()

        def record_until_ended() -> None:
            while not ended.wait(NOTE_S):
                self._record_segments()

        thread = threading.Thread(target=record_until_ended, name="memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._record_segments()

    def close(self) -> None:
        """Free the recorded segments that no child process has mapped, and remove the folder."""
        if self.folder is not None:
            delete_orphaned_shared_memory(_list_recorded_segments(self.folder))
            shutil.rmtree(self.folder)
            self.folder = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _record_segments(self) -> None:
        if self.folder is not None and (paths := list_shared_memory_files()):
            unnamed = self.folder / f".{_SEGMENTS}"
            unnamed.write_text("".join(f"{path.name}\n" for path in sorted(paths)))
            unnamed.rename(self.folder / _SEGMENTS)


def free_abandoned_memory(memory: Path = MEMORY) -> None:
    """Free the shared memory that killed engines of this user have left behind.

    If a process still maps a segment of an engine, the engine's segments and folder are kept.

    Args:
        memory: folder of the shared memory segments and of the engines' folders.
    """
    for folder in memory.glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # another starting engine has just freed this folder
            if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
                continue
            with open(folder / _LOCK, "rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue  # the engine of this folder still runs
                _free_engine_memory(folder)


def _free_engine_memory(folder: Path) -> None:
    memory, paths = folder.parent, _list_recorded_segments(folder)
    num_bytes = sum(path.stat().st_size for path in [*paths, *folder.rglob("*")])
    if users := list_processes_mapping_files(paths):
        logger.warning(
            "the processes %s of an engine whose job was killed still run, and occupy %d MiB in "
            "%s. End them by: kill %s",
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


def _list_recorded_segments(folder: Path) -> list[Path]:
    """Return the paths of the segments that an engine's folder lists and that still exist."""
    listed = folder / _SEGMENTS
    names = listed.read_text().splitlines() if listed.is_file() else []
    paths = [folder.parent / name for name in names if _SEGMENT.fullmatch(name)]
    return [path for path in paths if path.is_file() and path.stat().st_uid == os.geteuid()]


# The following code terminates vLLM's processes when the process that started the engine has
# exited, even if that process was killed.
#
# vLLM's engine process waits for requests and does not notice that its owner has exited. It would
# occupy its memory until somebody kills it. vLLM's argument `worker_extension_cls` adds a base
# class to its workers. A worker runs in the engine process or in a child of it.

OWNER = "MCLABEL_ENGINE_OWNER"
"""Environment variable with the id of the process that started the engine (its owner)."""


class OwnerWatchingWorker:
    """Base class of vLLM's workers that terminates a worker when its owner process exits.

    The owner is the process that started the engine.
    """

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        """Create a worker, and watch the owner before the worker loads its model."""
        end_engine_when_owner_ends(int(os.environ[OWNER]))
        return super().__new__(cls)


def end_engine_when_owner_ends(owner: int) -> None:
    """Kill this process and the engine process as soon as the owner has ended.

    Args:
        owner: id of the process that started the engine. It is the parent or the grandparent of
            this process.
    """
    if owner == os.getpid() or not hasattr(os, "pidfd_open"):  # only Linux has pidfd_open
        return
    engine = os.getppid()
    try:
        ended = os.pidfd_open(owner)
    except ProcessLookupError:
        _kill_engine_and_self(engine)
    except OSError as error:
        logger.warning(
            "process %d cannot be watched (%s). If it is killed, vLLM's processes stay alive",
            owner,
            error,
        )
        return
    watch = select.poll()
    watch.register(ended, select.POLLIN)

    def wait_and_kill() -> None:
        watch.poll()
        _kill_engine_and_self(engine)

    threading.Thread(target=wait_and_kill, name="owner", daemon=True).start()


def _kill_engine_and_self(engine: int) -> None:
    # If this process is the engine process, its parent was the owner, which has ended, so the id of
    # its parent has changed.
    if os.getppid() == engine:
        os.kill(engine, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
