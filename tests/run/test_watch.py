"""The silence of an engine: measured by its own pace, and by nothing that is not its own."""

from __future__ import annotations

import pytest

from mclabel.run.running import FIRST, MAX_TICK_S, PACE, PATIENCE, WINDOW_S, Watch
from mclabel.run.task import RunnerState
from mclabel.run.worker import WorkerProgress

FLOOR = 60.0


def at_work(num_tokens: int, *, is_steady: bool = True) -> WorkerProgress:
    return WorkerProgress(
        worker="w", runner=RunnerState(num_live=8, num_tokens=num_tokens, is_steady=is_steady)
    )


class Clock:
    """Lets a watch tick once a second."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.now = watch, 0.0
        watch.tick(self.now)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            self.watch.tick(self.now)


def begun(pause_s: float = 1.0) -> Clock:
    """An engine that gives a token after each pause."""
    clock = Clock(Watch(stall_s=FLOOR))
    for number in range(20):
        clock.watch.record(at_work(number))
        clock.wait(pause_s)
    clock.watch.record(at_work(20))
    return clock


def test_a_fast_engine_has_stopped_after_twice_the_floor() -> None:
    clock = begun()
    for now, silent, stopped in [(59, False, False), (60, True, False), (120, True, True)]:
        clock.wait(now - clock.watch.silent_s)
        clock.watch.record(at_work(20))
        assert (clock.watch.is_silent, clock.watch.has_stopped) == (silent, stopped)
    assert "produced no token and did not respond for 120 s" in clock.watch.report()
    assert "longest recent pause: 1.0 s" in clock.watch.report()


def test_news_of_a_batch_is_a_sign_of_life() -> None:
    clock = begun()
    for number in range(10):
        clock.wait(FLOOR / 2)
        runner = RunnerState(num_live=8, num_tokens=20, num_signs=number + 1)
        clock.watch.record(WorkerProgress(worker="w", runner=runner))
        assert not clock.watch.is_silent


def test_a_slow_engine_is_given_the_time_that_it_takes() -> None:
    clock = begun(pause_s=40.0)
    assert clock.watch.limit_s == PACE * 40.0
    clock.wait(199)
    assert not clock.watch.is_silent
    clock.wait(1)
    assert clock.watch.is_silent and not clock.watch.has_stopped
    clock.watch.record(at_work(21))
    assert clock.watch.silent_s == 0.0 and not clock.watch.is_silent


def test_a_long_pause_counts_for_some_minutes() -> None:
    clock = begun()
    clock.wait(50)
    clock.watch.record(at_work(21))
    assert clock.watch.limit_s == PACE * 50
    for number in range(int(WINDOW_S) + 2):
        clock.wait(1)
        clock.watch.record(at_work(22 + number))
    assert clock.watch.limit_s == FLOOR


def test_the_first_token_may_take_longer() -> None:
    clock = Clock(Watch(stall_s=FLOOR))
    clock.watch.record(at_work(0))
    clock.wait(FIRST * FLOOR - 1)
    clock.watch.record(at_work(0))
    assert not clock.watch.is_silent
    clock.wait(1)
    assert clock.watch.is_silent
    clock.wait((PATIENCE - 1) * FIRST * FLOOR)
    assert clock.watch.has_stopped


def test_an_engine_with_nothing_to_do_is_not_silent() -> None:
    clock = begun()
    for _ in range(500):
        clock.wait(1)
        clock.watch.record(WorkerProgress(worker="w", runner=RunnerState(num_tokens=20)))
    assert not clock.watch.is_silent


def test_an_idle_engine_that_does_not_answer_is_silent() -> None:
    clock = begun()
    clock.watch.record(WorkerProgress(worker="w", runner=RunnerState(num_tokens=20)))
    clock.wait(120)
    assert clock.watch.has_stopped


@pytest.mark.parametrize("held_up_s", [300.0, 3e6])
def test_a_driver_that_was_held_up_suspects_nobody(held_up_s: float) -> None:
    clock = begun()
    clock.now += held_up_s
    clock.watch.tick(clock.now)
    assert clock.watch.silent_s == MAX_TICK_S


def test_an_engine_that_counts_at_the_end_is_reported_and_not_replaced() -> None:
    clock = Clock(Watch(stall_s=FLOOR))
    for number in range(3):
        clock.watch.record(at_work(number, is_steady=False))
        clock.wait(1)
    clock.wait(10_000)
    assert clock.watch.is_silent and not clock.watch.has_stopped
