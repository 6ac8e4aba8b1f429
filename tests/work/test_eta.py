"""The time that is said to be left, over whole jobs that are played through second by second."""

from __future__ import annotations

import io
import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from rich.console import Console

from mclabel.data.sizes import Size
from mclabel.report.terminal.job_progress import job_progress
from mclabel.work.forecast import Remainder
from mclabel.work.meter import Meter
from mclabel.work.tally import JobState
from tests.support.job_states import STATE

BLOCK = 8
CHARS = 100
SPEED = 7000.0
"""Tokens a second of an engine, shared by the problems under way."""


@dataclass
class Problem:
    cost: float
    had: float = 0.0


@dataclass(frozen=True)
class Job:
    """What is played: engines load, take two blocks each, and work on their problems evenly."""

    costs: list[float]
    num_engines: int = 1
    load_s: int = 20
    later_s: int = 0
    """After which the other engines are loaded, too."""

    def states(self) -> Iterator[JobState]:
        """A state a second, until all is done; the forecast as a job makes it."""
        count = len(self.costs)
        remainder = Remainder(num_items=count, size=_size(count))
        blocks = deque(
            [Problem(cost) for cost in self.costs[i : i + BLOCK]] for i in range(0, count, BLOCK)
        )
        held: list[list[list[Problem]]] = [[] for _ in range(self.num_engines)]
        done: list[Problem] = []
        sampled = 0.0
        for second in range(1_000_000):
            up = 0 if second < self.load_s else 1
            up = self.num_engines if second >= self.load_s + self.later_s else up
            for engine in held[:up]:
                while len(engine) < 2 and blocks:
                    engine.append(blocks.popleft())
                at_work = [p for block in engine for p in block if p.had < p.cost]
                for problem in at_work:
                    problem.had += SPEED / len(at_work)
                    sampled += SPEED / len(at_work)
                for block in [b for b in engine if all(p.had >= p.cost for p in b)]:
                    engine.remove(block)
                    done += block
                    remainder.commit(_size(len(block)), round(sum(p.cost for p in block)))
            under_way = [p for engine in held for block in engine for p in block]
            labeled = [*done, *(p for p in under_way if p.had >= p.cost)]
            left = remainder.left(
                num_done=len(labeled),
                done_tokens=round(sum(p.cost for p in labeled)),
                open_tokens=round(sum(p.had for p in under_way)),
            )
            yield replace(
                STATE,
                num_items=count,
                num_items_resumed=0,
                num_items_done=len(labeled),
                num_workers=up,
                num_tokens=round(sampled),
                num_tokens_left=left,
            )
            if len(done) == count:
                return


def _size(count: int) -> Size:
    return Size(count, count * CHARS, count * CHARS**2)


def lognormal(count: int, *, seed: int, sigma: float = 0.6) -> list[float]:
    rng = random.Random(seed)
    return [rng.lognormvariate(8.3, sigma) for _ in range(count)]


def said(job: Job) -> tuple[list[tuple[int, float | None]], list[JobState]]:
    """Each second, how long was left, and how long was said to be."""
    states, meter = list(job.states()), Meter()
    etas = [meter.update(state, float(second)).eta_s for second, state in enumerate(states)]
    return [(len(states) - 1 - second, eta) for second, eta in enumerate(etas)], states


JOBS = {
    "one engine": Job(lognormal(100, seed=1)),
    "a slow start": Job(lognormal(100, seed=2), load_s=58),
    "few problems": Job(lognormal(20, seed=3)),
    "engines that join": Job(lognormal(600, seed=4), num_engines=4, later_s=90),
    "costs all over": Job(lognormal(300, seed=5, sigma=1.2)),
}


@pytest.mark.parametrize("name", JOBS)
def test_the_time_left_is_about_what_is_left(name: str) -> None:
    """From a tenth of the problems on; the first 2,972 s of a job of 90 were no forecast."""
    found, states = said(JOBS[name])
    joined = max(i for i, state in enumerate(states) if state.num_workers < JOBS[name].num_engines)
    judged = [
        (left, eta)
        for second, (left, eta) in enumerate(found)
        if eta is not None
        and second > joined + 1
        and states[second].num_items_done >= states[second].num_items / 10
        and left >= 5
    ]
    assert len(judged) > 5
    ratios = sorted(eta / left for left, eta in judged)
    assert 0.45 < ratios[len(ratios) // 2] < 1.6
    assert ratios[0] > 0.1 and ratios[-1] < 2.0  # too little where one problem takes long at last


@pytest.mark.parametrize("name", JOBS)
def test_never_far_more_and_never_nothing_while_work_is_open(name: str) -> None:
    found, states = said(JOBS[name])
    for (left, eta), state in zip(found, states, strict=True):
        if eta is not None and state.num_items_done < state.num_items:
            assert 0 < eta < 4 * (left + 15)


def test_without_a_forecast_no_time_is_said() -> None:
    """Not what it would take if problems were done one after the other."""
    output = io.StringIO()
    state = replace(STATE, num_items_resumed=0, num_items_done=1, num_items=100)
    with job_progress(Console(file=output, width=400), "label") as show:
        show(replace(state, num_items_done=0))
        show(replace(state, num_tokens=100))
    assert "label: 1/100 problems" in output.getvalue() and "eta" not in output.getvalue()


def test_an_engine_that_is_away_leaves_the_speed_of_the_others() -> None:
    meter = Meter()
    state = replace(STATE, num_workers=2, num_tokens_left=40_000.0)
    meter.update(state, 0.0)
    rates = meter.update(replace(state, num_tokens=2000), 1.0)
    assert rates.eta_s == 20.0
    rates = meter.update(replace(state, num_tokens=4000, num_workers=1), 2.0)
    assert rates.eta_s == 40.0  # half as fast
    rates = meter.update(replace(state, num_tokens=4000, num_workers=0), 3.0)
    assert rates.eta_s is None
