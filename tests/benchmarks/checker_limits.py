"""The answer checker's limits: a caller that waits, hostile pairs, and verdicts under load.

Run by `tests.benchmarks.checker`; every function prints what it found and returns figures.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import psutil
from rich.console import Console

from mclabel.answers import Checker, Grade, extract_answer
from mclabel.answers.grade import grade_here
from mclabel.answers.rules import DEFAULT_RULES
from tests.answers.test_hostile import bombs
from tests.benchmarks.sizes import BenchmarkSize
from tests.support.hard_pairs import double_angle, logarithm, mixture, shifted_wave
from tests.support.hostile_texts import hostile_pairs

Completions = Sequence[tuple[str, str]]
REPEATS = 5
"""Of a timed pass; the best counts, since other processes share the cores."""
BOMB_SHARE = 100
"""One completion in so many is a bomb."""
MIN_ASKED, MAX_ASKED = 100, 2_000
"""Hostile pairs that are followed into a worker: one in ten of those that ask for one, but not
fewer than the first number where there are as many, nor more than the second."""
LOAD_BUDGET = 55_000
"""Steps: within a factor of two of what `logarithm` and `double_angle` take."""


def waiting(
    console: Console, completions: Completions, their_rate: Callable[[Completions], float]
) -> dict[str, Any]:
    """Whole solutions graded as one batch, without a memo, caller and workers on one core."""
    with _one_core():
        checker = _warm()
        passes = [
            (_batch_rate(checker, completions), their_rate(completions)) for _ in range(REPEATS)
        ]
        times = sorted(_seconds_each(checker, completions))
        checker.close()
    best = max(ours for ours, _ in passes)
    typical = statistics.median(ours for ours, _ in passes)
    ratio = statistics.median(ours / theirs for ours, theirs in passes)
    p99, p999 = (1000 * times[int(len(times) * q)] for q in (0.99, 0.999))
    console.print(
        f"a caller that waits, one core, no memo: {best:,.0f} pairs/s (median of {REPEATS} passes "
        f"{typical:,.0f}), {ratio:,.0f} times Math-Verify in turns with it; alone a pair takes p99 "
        f"{p99:.2f} ms, p99.9 {p999:.2f} ms"
    )
    return {
        "pairs_per_s_waiting": round(best),
        "ratio_to_math_verify_waiting": round(ratio, 1),
        "p99_ms_waiting": round(p99, 3),
        "p999_ms_waiting": round(p999, 3),
    }


def hostile_share(console: Console, completions: Completions) -> dict[str, Any]:
    """What one bomb to a hundred solutions costs a caller that waits for the whole batch."""
    corpus = bombs()
    mixed = list(completions)
    for i in range(len(completions) // BOMB_SHARE):
        mixed.insert(i * (BOMB_SHARE + 1), (corpus[i % len(corpus)], "12"))
    with _one_core():
        checker = _warm()
        alone, among = (
            min(_batch_cpu_seconds(checker, some) for _ in range(REPEATS))
            for some in (completions, mixed)
        )
        checker.close()
    cost = 1 - alone / among
    console.print(
        f"1% of bombs cost a caller that waits {cost:.1%} of its pairs a second (CPU time of "
        f"caller and workers on one core: {1e6 * alone / len(completions):.0f} µs a pair alone)"
    )
    return {
        "hostile_share_cost": round(cost, 4),
        "pairs_per_cpu_s_waiting": round(len(completions) / alone),
    }


def hostile(console: Console, golds: Sequence[str], *, number: int) -> dict[str, Any]:
    """The slowest of many hostile pairs: the caller's CPU time, and in all with a warm worker.

    A pair that takes long is tried twice more, and the least time counts: a page fault or a
    neighbour is not the pair's doing.
    """
    gc.collect()
    gc.freeze()
    slowest, slowest_pair, asking = 0.0, ("", ""), []
    for text, gold in islice(hostile_pairs(0, golds), number):
        took, question = _caller_seconds(text, gold)
        if took > slowest and took > 0.005:
            took = min(took, *(_caller_seconds(text, gold)[0] for _ in range(2)))
        if took > slowest:
            slowest, slowest_pair = took, (text, gold)
        if question:
            asking.append((text, gold))
    every = max(1, min(10, len(asking) // MIN_ASKED))
    checker = _warm()
    in_all = []
    for pair in asking[::every][:MAX_ASKED]:
        start = time.perf_counter()
        reason = checker.grade(*pair).reason
        in_all.append((time.perf_counter() - start, reason, pair))
    checker.close()
    seconds, reason, pair = max(in_all, default=(0.0, "none", ("", "")))
    console.print(
        f"{number:,} hostile pairs: the slowest takes {1000 * slowest:.1f} ms of the caller's CPU "
        f"time: {slowest_pair[0][:60]!r} ;; {slowest_pair[1][:60]!r}; of {len(in_all):,} that "
        f"reach a worker the slowest takes {seconds:.2f} s in all ({reason}): {pair[0][:60]!r}",
        markup=False,
    )
    return {
        "hostile_pairs": number,
        "caller_ms_slowest": round(1000 * slowest, 1),
        "seconds_slowest": round(seconds, 2),
    }


def under_load(console: Console, completions: Completions, size: BenchmarkSize) -> dict[str, Any]:
    """Whether 22,000 pairs get the same verdicts alone and beside 20 busy processes."""
    num_near = size.pick(smoke=1, quick=100, full=100)
    num_hard = size.pick(smoke=2, quick=200, full=2_000)
    num_easy = size.pick(smoke=200, quick=20_000, full=20_000)
    near = [make(n) for make in (logarithm, double_angle) for n in range(num_near)]
    hard = mixture([(num_hard, shifted_wave)]) + near
    easy = [(extract_answer(text), gold) for text, gold in completions]
    pairs = [*hard, *(easy * (1 + num_easy // len(easy)))[:num_easy]]
    alone = _grades(pairs, num_workers=2)
    with _load(20):
        together = _grades(pairs, num_workers=4)
    differ = sum(a != b for a, b in zip(alone, together, strict=True))
    undecided = sum(grade.reason == "too_many_steps" for grade in alone)
    console.print(
        f"{len(pairs):,} pairs, {len(hard):,} of them by a worker and {len(near)} near its budget "
        f"({undecided} beyond it): {differ} verdicts differ under a load of 20"
    )
    return {"same_under_load": differ == 0}


def _grades(pairs: Sequence[tuple[str | None, str]], *, num_workers: int) -> list[Grade]:
    checker = Checker(max_steps=LOAD_BUDGET, num_workers=num_workers, memo_size=0)
    grades = checker.grade_many(pairs)
    checker.close()
    return grades


def _warm() -> Checker:
    checker = Checker(memo_size=0)
    checker.grade("\\sin 2x", "2\\sin x\\cos x")
    return checker


def _batch_rate(checker: Checker, completions: Completions) -> float:
    return len(completions) / _batch_seconds(checker, completions)


def _batch_seconds(checker: Checker, completions: Completions) -> float:
    start = time.perf_counter()
    checker.grade_many((extract_answer(text), gold) for text, gold in completions)
    return time.perf_counter() - start


def _batch_cpu_seconds(checker: Checker, completions: Completions) -> float:
    start = _cpu_seconds(checker)
    _batch_seconds(checker, completions)
    return _cpu_seconds(checker) - start


def _cpu_seconds(checker: Checker) -> float:
    """Of this process, the host and its children that have ended: all that a batch had asked."""
    pid = checker.host_pid()
    return time.process_time() + (sum(psutil.Process(pid).cpu_times()[:4]) if pid else 0.0)


def _seconds_each(checker: Checker, completions: Completions) -> Iterator[float]:
    for text, gold in completions:
        start = time.perf_counter()
        checker.grade_completion(text, gold)
        yield time.perf_counter() - start


def _caller_seconds(text: str, gold: str) -> tuple[float, bool]:
    """CPU time of the layers in this process, and whether they ask a worker."""
    start = time.thread_time()
    found = [grade_here(text, gold, DEFAULT_RULES)]
    answer = extract_answer(text)
    if answer is not None and answer != text:
        found.append(grade_here(answer, gold, DEFAULT_RULES))
    return time.thread_time() - start, not isinstance(found[0], Grade)


@contextmanager
def _one_core() -> Iterator[None]:
    """This process and what it starts from here on share one core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def _load(processes: int) -> Iterator[None]:
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
