"""Loads an engine in this process, in a thread that a stop may leave behind.

Loading takes seconds to minutes inside libraries that cannot be interrupted, and holds no work yet,
so a cancelled caller does not wait for it. The current stage is recorded for displays of progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

T = TypeVar("T")

LOADING = "loading"
"""Stage of a start that says nothing more of itself."""


async def load_beside(load: Callable[[], T]) -> T:
    """Run `load` in a thread and return its result; a cancelled caller does not end it."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="load")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, load)
    finally:
        thread.shutdown(wait=False)


class Keep(Protocol):
    """The files of a run, where an engine can keep what it must know after a kill."""

    def create(self, name: str, content: bytes) -> bool:
        """Write a whole file; False if there is one of that name."""

    def read(self, name: str) -> bytes | None:
        """Return a file's content, None if there is none."""

    def names(self, folder: str) -> list[str]:
        """Return the names of all files under a folder, sorted."""

    def delete(self, name: str) -> None:
        """Remove a file that may already be gone."""


class _Start:
    """State of the current start; this process starts one thing after the other."""

    stage: str | None = None
    since = 0.0
    keep: Keep | None = None


@contextmanager
def starting(keep: Keep | None = None) -> Iterator[None]:
    """Mark that an engine, or what else a task needs, is being started.

    Args:
        keep: the files of the run that it is started for.
    """
    _Start.stage, _Start.since, _Start.keep = LOADING, time.monotonic(), keep
    try:
        yield
    finally:
        _Start.stage = _Start.keep = None


def current_keep() -> Keep | None:
    """Return the files of the run for which an engine is started; None without a run."""
    return _Start.keep


def note_stage(stage: str) -> None:
    """Record what the start does from now on. From any thread; without a start, nothing happens.

    Args:
        stage: in words that follow "starting the engine: ".
    """
    if _Start.stage not in (None, stage):
        _Start.stage, _Start.since = stage, time.monotonic()


def current_stage() -> str | None:
    """Return what the start does now, and for how long; None where nothing is started."""
    if (stage := _Start.stage) is None:
        return None
    return f"{stage} ({time.monotonic() - _Start.since:.0f} s)"


# Loading a model says nothing by itself: what a job has to say, it says.


def quiet_transformers() -> None:
    """Turn off loading bars, and reports of what is meant to be so, such as a fresh head."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
