"""Progress of a job: rates, the remaining time, the displayed lines, and silent engines."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.run.forecast import RemainderForecast, Size
from mclabel.run.progress_log import RateMeter, list_cumulative_keys
from mclabel.run.running import FIRST, MAX_TICK_S, PACE, PATIENCE, WINDOW_S, EngineSilenceMonitor
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobState
from mclabel.run.task import RunnerState
from mclabel.run.worker import WorkerProgress
from mclabel.show.progress import job_progress
from tests.support.job_states import STATE
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

CHARS = 100


def _size(count: int) -> Size:
    return Size(count, count * CHARS, count * CHARS**2)


def test_without_a_forecast_no_time_is_said() -> None:
    """The display must not extrapolate as if problems were labelled one after another."""
    output = io.StringIO()
    state = replace(STATE, num_items_resumed=0, num_items_done=1, num_items=100)
    with job_progress(Console(file=output, width=400), "label") as show:
        show(replace(state, num_items_done=0))
        show(replace(state, num_tokens=100))
    assert "label: 1/100 problems" in output.getvalue() and "eta" not in output.getvalue()


def test_an_engine_that_is_away_leaves_the_speed_of_the_others() -> None:
    meter = RateMeter()
    state = replace(STATE, num_workers=2, num_tokens_left=40_000.0)
    meter.update(state, 0.0)
    rates = meter.update(replace(state, num_tokens=2000), 1.0)
    assert rates.eta_s == 20.0
    rates = meter.update(replace(state, num_tokens=4000, num_workers=1), 2.0)
    assert rates.eta_s == 40.0  # half the workers remain, so half the speed
    rates = meter.update(replace(state, num_tokens=4000, num_workers=0), 3.0)
    assert rates.eta_s is None


RECORDED = [
    (2122, 1, 119, 268, 2122, 0, 0),
    (9970, 10, 110, 3477, 9970, 0, 0),
    (19644, 13, 107, 4733, 19644, 0, 0),
    (29820, 22, 98, 9755, 29820, 0, 0),
    (41214, 36, 84, 20312, 41214, 0, 0),
    (52717, 47, 73, 28257, 52717, 0, 0),
    (64498, 48, 72, 28985, 64498, 0, 0),
    (75327, 51, 69, 32663, 75327, 0, 0),
    (85967, 56, 64, 43058, 63721, 24, 22246),
    (89896, 60, 60, 54865, 59270, 32, 30626),
    (97203, 76, 44, 63619, 52430, 40, 44773),
    (105472, 81, 39, 65799, 60699, 40, 44773),
    (114466, 81, 39, 65799, 69693, 40, 44773),
    (121404, 91, 29, 81945, 59502, 56, 61902),
    (128569, 94, 26, 89760, 66667, 56, 61902),
    (133994, 99, 21, 101543, 66857, 64, 67137),
    (135790, 105, 15, 118880, 28727, 96, 107063),
    (139801, 114, 6, 130076, 16456, 104, 123345),
    (144951, 117, 3, 135605, 21606, 104, 123345),
    (148137, 119, 1, 141542, 15445, 112, 132692),
    (148445, 119, 1, 141542, 15753, 112, 132692),
]
"""Recorded progress of a job of 120 problems on arith under `posterior`, all begun at once. The
columns are tokens sampled, problems done, problems open, tokens of the problems done, tokens of the
running blocks, problems committed, and tokens of the committed problems."""


def test_the_tokens_left_are_forecast_under_an_estimator_that_learns() -> None:
    """The longest-running problems cost most, so the mean cost of finished ones is far too low."""
    remainder = RemainderForecast(num_items=120, size=_size(120))
    num_committed = committed_tokens = 0
    ratios = []
    for sampled, done, num_open, done_tokens, open_tokens, committed, tokens in RECORDED:
        if committed > num_committed:
            remainder.add_committed_block(
                _size(committed - num_committed), tokens - committed_tokens
            )
            num_committed, committed_tokens = committed, tokens
        tokens_left = remainder.forecast_remaining_tokens(
            num_done=done, num_open=num_open, done_tokens=done_tokens, open_tokens=open_tokens
        )
        if 0.1 < sampled / RECORDED[-1][0] < 0.9:
            ratios.append(tokens_left / (RECORDED[-1][0] - sampled))
    assert all(0.5 < ratio < 2 for ratio in ratios)
    assert sum(1 / 1.5 < ratio < 1.5 for ratio in ratios) >= 0.8 * len(ratios)


def state_at(seconds: int) -> JobState:
    """Return the state at a time:

    10 problems, 40 completions and 2,000 tokens per second. From 100 s on, all three rates are
    doubled.
    """
    amount = seconds + max(0, seconds - 100)
    return replace(
        STATE,
        num_items_done=80 + amount,
        counters={**STATE.counters, "num_completions": 40 * amount},
        num_tokens=2000 * amount,
        num_tokens_left=2000.0 * (720 - amount),
    )


def test_rates_are_those_of_the_last_minute() -> None:
    meter = RateMeter()
    assert meter.update(state_at(0), 0.0).tokens_per_s is None
    for second in range(1, 201):
        rates = meter.update(state_at(second), float(second))
        if second == 50:
            assert (rates.items_per_s, rates.counters_per_s) == (1.0, {"num_completions": 40.0})
            assert rates.tokens_per_s == 2000.0
            assert rates.eta_s == 670.0  # 720 - 50 problems left, one per second
    assert rates.tokens_per_s == 4000.0
    assert rates.eta_s == 210.0  # 720 - 300 problems left, two per second


def test_another_run_has_rates_of_its_own() -> None:
    meter = RateMeter()
    for second in (0, 50):
        meter.update(state_at(second), float(second))
    meter.update(state_at(0), 60.0)
    assert meter.update(state_at(10), 70.0).tokens_per_s == 2000.0


def test_nothing_done_has_no_eta_and_a_cache_that_is_not_told_of_has_no_hits() -> None:
    meter = RateMeter()
    meter.update(STATE, 0.0)
    rates = meter.update(STATE, 10.0)
    assert (rates.eta_s, rates.tokens_per_s) == (None, 0.0)
    counters = STATE.counters
    assert LABEL_OUTPUTS.derived_figures(counters) == {"cache_hits": None}
    with_cache = {**counters, "num_prefill_tokens": 25, "num_cached_tokens": 75}
    assert LABEL_OUTPUTS.derived_figures(with_cache) == {"cache_hits": 0.75}


def test_a_line_says_what_there_is_to_say() -> None:
    output = io.StringIO()
    with job_progress(Console(file=output, width=400), "label") as show:
        show(
            replace(
                STATE,
                gauges={**STATE.gauges, "kv_usage": 0.871},
                counters={**STATE.counters, "num_preemptions": 3, "num_steps": 9},
                num_failures=1,
                num_live=1234,
            )
        )
    opening, line, *_ = output.getvalue().splitlines()
    assert opening == "label: reading inputs, loading libraries"
    assert "label: 80/800 problems" in line
    for words in ("2 engines", "1,234 live", "9 steps", "KV 87%", "3 preempted", "1 engines lost"):
        assert words in line
    assert "truncated" not in line and "cache" not in line and "GPU-h" not in line


def test_a_run_leaves_its_last_state(tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = ["ray.address=none", "policy.engine={kind: scripted, truncate_rate: 0.2, delay_s: 0.05}"]
    report = run_label_job(scripted_overrides(write_problems(tmp_path, 8), out, *more))
    last = json.loads((out / "progress.jsonl").read_text().splitlines()[-1])
    assert last["num_problems"] == 8
    assert 0 < last["num_completions"] <= sum(report.counts.values())
    assert 0 < last["num_truncated"] < last["num_completions"]
    assert last["num_tokens"] > 0 and last["num_replayed"] == 0
    assert list_cumulative_keys(STATE) < set(last)
    documented = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text()
    for name in list_cumulative_keys(STATE):
        assert name in documented


def test_a_log_in_an_object_store_is_added_to(tmp_path: Path) -> None:
    store = Store(f"file://{tmp_path}")
    store.append("log", b"one\n")
    store.append("log", b"two\n")
    assert store.read("log") == b"one\ntwo\n"


FLOOR = 60.0


def at_work(num_tokens: int, *, is_steady: bool = True) -> WorkerProgress:
    return WorkerProgress(
        worker="w", runner=RunnerState(num_live=8, num_tokens=num_tokens, is_steady=is_steady)
    )


class Clock:
    """A simulated clock that ticks a watch once per simulated second."""

    def __init__(self, watch: EngineSilenceMonitor) -> None:
        self.watch, self.now = watch, 0.0
        watch.advance_clock(self.now)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(self.now + 1.0, until)
            self.watch.advance_clock(self.now)


def producing_clock(pause_s: float = 1.0) -> Clock:
    """Return a clock whose engine has produced 20 tokens, with a pause before each, in seconds."""
    clock = Clock(EngineSilenceMonitor(stall_s=FLOOR))
    for number in range(20):
        clock.watch.record(at_work(number))
        clock.wait(pause_s)
    clock.watch.record(at_work(20))
    return clock


def test_a_fast_engine_has_stopped_after_twice_the_floor() -> None:
    clock = producing_clock()
    for now, silent, stopped in [(59, False, False), (60, True, False), (120, True, True)]:
        clock.wait(now - clock.watch.silent_s)
        clock.watch.record(at_work(20))
        assert (clock.watch.is_silent, clock.watch.has_stopped) == (silent, stopped)
    assert "produced no token and did not respond for 120 s" in clock.watch.describe_silence()
    assert "longest recent pause: 1.0 s" in clock.watch.describe_silence()


def test_a_slow_engine_is_given_the_time_that_it_takes() -> None:
    clock = producing_clock(pause_s=40.0)
    assert clock.watch.limit_s == PACE * 40.0
    clock.wait(199)
    assert not clock.watch.is_silent
    clock.wait(1)
    assert clock.watch.is_silent and not clock.watch.has_stopped
    clock.watch.record(at_work(21))
    assert clock.watch.silent_s == 0.0 and not clock.watch.is_silent


def test_a_long_pause_counts_for_some_minutes() -> None:
    clock = producing_clock()
    clock.wait(50)
    clock.watch.record(at_work(21))
    assert clock.watch.limit_s == PACE * 50
    for number in range(int(WINDOW_S) + 2):
        clock.wait(1)
        clock.watch.record(at_work(22 + number))
    assert clock.watch.limit_s == FLOOR


def test_the_first_token_may_take_longer() -> None:
    clock = Clock(EngineSilenceMonitor(stall_s=FLOOR))
    clock.watch.record(at_work(0))
    clock.wait(FIRST * FLOOR - 1)
    clock.watch.record(at_work(0))
    assert not clock.watch.is_silent
    clock.wait(1)
    assert clock.watch.is_silent
    clock.wait((PATIENCE - 1) * FIRST * FLOOR)
    assert clock.watch.has_stopped


def test_an_engine_with_nothing_to_do_is_not_silent() -> None:
    clock = producing_clock()
    for _ in range(500):
        clock.wait(1)
        clock.watch.record(WorkerProgress(worker="w", runner=RunnerState(num_tokens=20)))
    assert not clock.watch.is_silent


def test_an_idle_engine_that_does_not_answer_is_silent() -> None:
    clock = producing_clock()
    clock.watch.record(WorkerProgress(worker="w", runner=RunnerState(num_tokens=20)))
    clock.wait(120)
    assert clock.watch.has_stopped


@pytest.mark.parametrize("held_up_s", [300.0, 3e6])
def test_a_driver_that_was_held_up_suspects_nobody(held_up_s: float) -> None:
    clock = producing_clock()
    clock.now += held_up_s
    clock.watch.advance_clock(clock.now)
    assert clock.watch.silent_s == MAX_TICK_S


def test_an_engine_that_counts_at_the_end_is_reported_and_not_replaced() -> None:
    clock = Clock(EngineSilenceMonitor(stall_s=FLOOR))
    for number in range(3):
        clock.watch.record(at_work(number, is_steady=False))
        clock.wait(1)
    clock.wait(10_000)
    assert clock.watch.is_silent and not clock.watch.has_stopped
