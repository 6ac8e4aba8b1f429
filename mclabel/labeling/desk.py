"""A thread beside the event loop for what computes: grading, and estimators' decisions.

The loop carries the engine's completions; whatever holds it keeps the engine waiting. One
thread and not more, since more would only contend for the interpreter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

TICK_S = 0.05


class Desk:
    """Runs functions one after the other, off the event loop."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="desk")

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.pool, lambda: work(*args, **kwargs))

    def close(self) -> None:
        """Forget what has not begun."""
        self.pool.shutdown(wait=False, cancel_futures=True)


class LoopLag:
    """How late an event loop runs what is due: the time that something held it."""

    def __init__(self) -> None:
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._worst_s = max(self._worst_s, time.monotonic() - due)

    def take(self) -> float:
        """The longest delay since the last call, in seconds."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst
