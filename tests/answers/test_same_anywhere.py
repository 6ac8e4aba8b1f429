"""A verdict depends only on the pair, not on load, order or earlier pairs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mclabel.answers import Checker
from tests.support.hard_pairs import double_angle, logarithm, mixture, shifted_wave

BUDGET = 55_000
"""Step limit between the costs of two kinds of pairs, within a factor of 2 of both."""
PAIRS = [
    *mixture([(8, shifted_wave), (3, logarithm), (3, double_angle)]),
    ("10!/(3!7!)", "120"),
]


def grade_pairs(pairs: list[tuple[str, str]], *, num_workers: int) -> list[tuple[str, str]]:
    """Return the verdict and reason of each pair from a new checker."""
    checker = Checker(max_steps=BUDGET, num_workers=num_workers, memo_size=0)
    verdicts = [(g.verdict.value, g.reason) for g in checker.grade_many(pairs)]
    checker.close()
    return verdicts


@contextmanager
def busy_processes(processes: int) -> Iterator[None]:
    """Run processes that occupy the CPU all the time."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_load_and_order_change_no_verdict() -> None:
    alone = grade_pairs(PAIRS, num_workers=1)
    backwards = grade_pairs(PAIRS[::-1], num_workers=1)[::-1]
    with busy_processes(4 * (os.cpu_count() or 1)):
        together = grade_pairs(PAIRS, num_workers=6)
    assert backwards == alone
    assert together == alone
    assert alone.count(("right", "equal")) == 12
    assert alone.count(("unknown", "too_many_steps")) == 3
