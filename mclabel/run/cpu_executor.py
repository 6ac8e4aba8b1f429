"""A thread beside the event loop for what computes: grading, and estimators' decisions.

The loop carries the engine's completions; whatever holds it keeps the engine waiting. One
thread and not more, since more would only contend for the interpreter. Functions are run many at a
time, and their results handed to the loop together: a hand-over costs more than most of the work.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")

TICK_S = 0.05
TURN_S = 0.005
"""The executor works so long, or for one function that takes longer, between two hand-overs."""


class CpuExecutor:
    """Runs functions one after the other, off the event loop. Serves one loop."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="executor")
        self._due: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._busy = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the thread and return its result."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[T] = loop.create_future()
        self._due.append((turn, partial(work, *args, **kwargs)))
        if not self._busy:
            self._pool.submit(self._work, loop)
            self._busy = True
        return await turn

    def close(self) -> None:
        """Drop what has not begun."""
        self._due.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run due functions in the thread until the turn is over."""
        done: list[tuple[asyncio.Future[Any], Any, Exception | None]] = []
        end = time.monotonic() + TURN_S
        while time.monotonic() < end:
            try:
                turn, work = self._due.popleft()
            except IndexError:  # all done, or dropped
                break
            if turn.cancelled():
                continue
            try:
                done.append((turn, work(), None))
            except Exception as error:  # to whoever asked
                done.append((turn, None, error))
        loop.call_soon_threadsafe(self._hand_over, loop, done)

    def _hand_over(
        self,
        loop: asyncio.AbstractEventLoop,
        done: list[tuple[asyncio.Future[Any], Any, Exception | None]],
    ) -> None:
        """On the loop: give the results to those who wait, and go on while more is due."""
        if self._due:
            self._pool.submit(self._work, loop)
        else:
            self._busy = False
        for turn, result, error in done:
            if turn.done():
                continue
            if error is None:
                turn.set_result(result)
            else:
                turn.set_exception(error)


class LoopLag:
    """Delay of an event loop: how late it runs due callbacks because something blocked it."""

    def __init__(self) -> None:
        """Begin without a measurement."""
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._worst_s = max(self._worst_s, time.monotonic() - due)

    def take(self) -> float:
        """Return the longest delay since the last call, in seconds."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst


async def gather_or_cancel(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run the coroutines concurrently; if one fails or the caller is cancelled, cancel the rest."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
