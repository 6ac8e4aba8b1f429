"""Loads an engine in a thread of this process, and records the stage of its start for displays.

Loading takes seconds to minutes in libraries that cannot be interrupted. A cancelled caller
therefore does not wait for the thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

LOADING = "loading"
"""Stage of a start before the first call of `record_stage`."""


async def load_in_thread(load: Callable[[], T]) -> T:
    """Run `load` in a new thread and return its result. A cancelled caller leaves it running."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="load")
    try:
        return await asyncio.get_running_loop().run_in_executor(thread, load)
    finally:
        thread.shutdown(wait=False)


class _EngineStart:
    """Stage of the engine that is being started. A process starts only one engine at a time."""

    stage: str | None = None
    """Name of the current stage; None if nothing is being started."""
    since = 0.0
    """Time of `time.monotonic()` at which the stage began."""


@contextmanager
def mark_engine_start() -> Iterator[None]:
    """Show that an engine or another component is being started as long as this context is open."""
    _EngineStart.stage, _EngineStart.since = LOADING, time.monotonic()
    try:
        yield
    finally:
        _EngineStart.stage = None


def record_stage(stage: str) -> None:
    """Record the stage that the current start has reached. Do nothing if nothing is being started.

    This function may be called from any thread.

    Args:
        stage: text that follows "starting the engine: ", such as "loading weights".
    """
    if _EngineStart.stage not in (None, stage):
        _EngineStart.stage, _EngineStart.since = stage, time.monotonic()


def get_current_stage() -> str | None:
    """Return a text with the stage of the current start and its duration; None without a start."""
    if (stage := _EngineStart.stage) is None:
        return None
    return f"{stage} ({time.monotonic() - _EngineStart.since:.0f} s)"


# Jobs write their own messages about loading a model, so the messages of libraries are off.


def silence_transformers() -> None:
    """Turn off transformers' progress bars and warnings, such as that a new head is untrained."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
