"""The time that is said to be left, over whole jobs that are played through second by second."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from mclabel.run.forecast import Remainder, Size
from mclabel.run.progress_log import Meter
from mclabel.show.progress import job_progress
from tests.support.job_states import STATE

CHARS = 100


def _size(count: int) -> Size:
    return Size(count, count * CHARS, count * CHARS**2)


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


RECORDED = [
    (35.2, 6981, 5, 115, 490, 6981, 0, 0),
    (33.5, 13821, 12, 108, 1556, 13821, 0, 0),
    (31.7, 18940, 12, 108, 1556, 18940, 0, 0),
    (29.9, 25146, 12, 108, 1556, 25146, 0, 0),
    (28.2, 31440, 13, 107, 2210, 31440, 0, 0),
    (26.4, 37889, 18, 102, 5362, 37889, 0, 0),
    (24.6, 44000, 22, 98, 8825, 44000, 0, 0),
    (22.9, 51095, 24, 96, 11428, 51095, 0, 0),
    (21.1, 58666, 26, 94, 14076, 58666, 0, 0),
    (19.4, 66745, 30, 90, 21864, 66745, 0, 0),
    (17.6, 75341, 31, 89, 24050, 75341, 0, 0),
    (15.8, 84362, 34, 86, 29688, 84362, 0, 0),
    (14.1, 94621, 36, 84, 36865, 94621, 0, 0),
    (12.3, 103959, 39, 81, 46707, 103959, 0, 0),
    (10.6, 111983, 40, 80, 52182, 111983, 0, 0),
    (9.3, 115701, 47, 73, 86722, 46610, 32, 57792),
    (7.5, 120322, 48, 72, 92571, 51231, 40, 69091),
    (5.7, 122289, 83, 37, 113472, 26679, 48, 95610),
    (3.9, 127121, 91, 29, 115161, 31511, 48, 95610),
    (2.2, 132654, 113, 7, 124911, 32725, 56, 97433),
    (0.8, 135165, 119, 1, 130888, 5994, 96, 111538),
    (0.0, 135298, 120, 0, 132158, 3140, 112, 129171),
]
"""Of a job of 120 problems on arith under `posterior`, which were all begun at once; the first ones
were rolled out at length, to learn from: seconds left, tokens sampled, problems done and open, what
those that are done and the running blocks have cost, problems committed, and their cost."""


def test_the_time_left_falls_under_an_estimator_that_learns() -> None:
    """It rose from 5 to 29 s, as the cost of all open problems was laid on the few done."""
    remainder, meter = Remainder(num_items=120, size=_size(120)), Meter()
    end = RECORDED[0][0]
    state = replace(STATE, num_items=120, num_items_resumed=0, num_workers=1)
    meter.update(replace(state, num_items_done=0, num_tokens=0), -1.0)
    num_committed = committed_tokens = 0
    etas = []
    for left, sampled, done, num_open, done_tokens, open_tokens, committed, tokens in RECORDED:
        if committed > num_committed:
            size = _size(committed - num_committed)
            remainder.commit(size, tokens - committed_tokens)
            num_committed, committed_tokens = committed, tokens
        tokens_left = remainder.left(
            num_done=done, num_open=num_open, done_tokens=done_tokens, open_tokens=open_tokens
        )
        state = replace(state, num_items_done=done, num_tokens=sampled, num_tokens_left=tokens_left)
        eta_s = meter.update(state, end - left).eta_s
        assert eta_s is not None
        etas.append(eta_s)
    judged = [(eta, row[0]) for eta, row in zip(etas, RECORDED, strict=True) if row[0] > 3][2:]
    assert all(0.25 < eta / left < 2.5 for eta, left in judged)
    assert etas[4] > 1.3 * etas[10] > 2 * etas[17] > 4 * etas[19]
