"""The executor that runs CPU work outside the event loop."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from mclabel.run.cpu_executor import TURN_S, CpuExecutor


def test_in_order_in_one_other_thread_and_to_whoever_asked() -> None:
    executor, began = CpuExecutor(), []

    def work(number: int) -> int:
        began.append((number, threading.current_thread().name))
        if number % 7 == 3:
            raise ValueError(number)
        return 2 * number

    async def run() -> list[int | BaseException]:
        return await asyncio.gather(
            *(executor.run(work, number) for number in range(500)), return_exceptions=True
        )

    results = asyncio.run(run())
    assert [number for number, _ in began] == list(range(500))
    assert len({thread for _, thread in began} - {threading.current_thread().name}) == 1
    for number, result in enumerate(results):
        if number % 7 == 3:
            assert isinstance(result, ValueError) and result.args == (number,)
        else:
            assert result == 2 * number
    executor.close()


def test_a_long_task_does_not_hold_back_the_answers_before_it() -> None:
    executor, release = CpuExecutor(), threading.Event()

    async def run() -> bool:
        first = asyncio.create_task(executor.run(time.sleep, 2 * TURN_S))
        long = asyncio.create_task(executor.run(release.wait, 60))
        await first
        still = not long.done()
        release.set()
        await long
        return still

    assert asyncio.run(run())
    executor.close()


def test_who_does_not_wait_any_more_is_passed_over() -> None:
    executor, release = CpuExecutor(), threading.Event()
    ran: list[int] = []

    async def run() -> None:
        first = asyncio.create_task(executor.run(release.wait, 60))
        await asyncio.sleep(0.05)
        dropped = asyncio.create_task(executor.run(ran.append, 1))
        kept = asyncio.create_task(executor.run(ran.append, 2))
        await asyncio.sleep(0.05)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        release.set()
        await asyncio.gather(first, kept)

    asyncio.run(run())
    assert ran == [2]
    executor.close()
