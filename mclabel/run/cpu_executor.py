"""A thread that runs computations (grading, estimators' decisions) off the event loop.

The event loop passes requests to the engine, so blocking it keeps the engine waiting. There is only
one thread, because several would compete for Python's interpreter lock. The thread runs many
functions in a row and passes their results to the loop in one batch, because waking the loop costs
more than most of these functions.
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
"""Seconds between two measurements of an event loop's delay."""
TURN_S = 0.005
"""Seconds of work after which the executor passes its results to the loop. A function that is
running at that time is finished first."""


class CpuExecutor:
    """Runs functions one after the other in a thread, for one event loop."""

    def __init__(self) -> None:
        """Start with an empty queue."""
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="executor")
        self._due: deque[tuple[asyncio.Future[Any], Callable[[], Any]]] = deque()
        self._busy = False

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in the thread and return its result."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[T] = loop.create_future()
        self._due.append((turn, partial(work, *args, **kwargs)))
        if not self._busy:
            self._pool.submit(self._run_queued, loop)
            self._busy = True
        return await turn

    def close(self) -> None:
        """Drop the functions that have not started, and end the thread."""
        self._due.clear()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run_queued(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run queued functions in the thread for about `TURN_S` seconds."""
        done: list[tuple[asyncio.Future[Any], Any, Exception | None]] = []
        end = time.monotonic() + TURN_S
        while time.monotonic() < end:
            try:
                turn, work = self._due.popleft()
            except IndexError:  # the queue is empty, or was cleared
                break
            if turn.cancelled():
                continue
            try:
                done.append((turn, work(), None))
            except Exception as error:  # raised again in the caller of `run`
                done.append((turn, None, error))
        loop.call_soon_threadsafe(self._deliver_results, loop, done)

    def _deliver_results(
        self,
        loop: asyncio.AbstractEventLoop,
        done: list[tuple[asyncio.Future[Any], Any, Exception | None]],
    ) -> None:
        """Set the results of the waiting calls, and continue if functions are queued.

        This method runs on the event loop.
        """
        if self._due:
            self._pool.submit(self._run_queued, loop)
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
    """Measures the delay of an event loop: how late it runs callbacks because something blocked
    it.
    """

    def __init__(self) -> None:
        """Start with a delay of zero; `watch` measures."""
        self._worst_s = 0.0

    async def watch(self) -> None:
        """Measure until cancelled."""
        while True:
            due = time.monotonic() + TICK_S
            await asyncio.sleep(TICK_S)
            self._worst_s = max(self._worst_s, time.monotonic() - due)

    def take_longest_s(self) -> float:
        """Return the longest delay since the last call, in seconds."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst


async def gather_or_cancel(*works: Coroutine[Any, Any, T]) -> list[T]:
    """Run the coroutines concurrently and return their results in order. If one fails or the caller
    is cancelled, cancel the rest.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
