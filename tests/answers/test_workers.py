"""The worker pool: kills, replacements, limits, and what dies with what."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from mclabel.answers import Checker
from mclabel.answers.workers.host import refuse
from mclabel.core.records import Verdict

HARD = ("\\sin 2x", "2\\sin x\\cos x")
"""A true pair that needs a worker."""
STUCK = (
    "(a+b+c+d+e)^{50}",
    "(a+b)(a+b+c+d+e)^{49}+(c+d+e)(a+b+c+d+e)^{49}",
)
"""A pair that takes more steps than any budget allows."""


def hard_pairs(count: int) -> list[tuple[str, str]]:
    """Distinct true pairs that need a worker."""
    return [(f"{n}+\\cos 2x", f"{n + 1}-2\\sin^2 x") for n in range(count)]


@pytest.fixture(scope="module")
def running() -> Iterator[Checker]:
    """A checker for several tests: its host takes more of the processor than most questions."""
    checker = Checker(num_workers=2, max_steps=200_000)
    yield checker
    checker.close()


@pytest.fixture
def checker(running: Checker) -> Checker:
    """The checker that runs, without what it remembers of other tests."""
    running._memo.clear()
    return running


@pytest.fixture
def fresh() -> Iterator[Checker]:
    """A checker without a host."""
    checker = Checker(num_workers=2, max_steps=200_000)
    yield checker
    checker.close()


@pytest.mark.slow
def test_nothing_starts_before_it_is_needed_and_close_ends_it(fresh: Checker) -> None:
    checker = fresh
    assert checker.grade("1/2", "0.5").verdict is Verdict.RIGHT
    assert checker.grade("x+1", "1+x").verdict is Verdict.RIGHT
    assert checker.host_pid() is None
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    assert checker.host_pid() is not None
    pool = ThreadPoolExecutor(1)
    grading = pool.submit(checker.grade, *STUCK)
    while not (workers := _workers(checker)):
        time.sleep(0.001)
    pids = [checker.host_pid() or 0, *(worker.pid for worker in workers)]
    checker.close()
    assert grading.result(timeout=60).reason == "no_worker"
    _wait_for_the_end(pids)
    pool.shutdown()
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT


@pytest.mark.slow
def test_workers_killed_from_outside_lose_nothing(checker: Checker) -> None:
    """Their questions are asked again, alone, and what they left undecided is not remembered."""
    checker.grade(*HARD)
    pool = ThreadPoolExecutor(1)
    grading = pool.submit(checker.grade_many, [STUCK, *hard_pairs(4)])  # always one at work
    killed: set[int] = set()
    while len(killed) < 2:
        assert not grading.done()
        killed.update(_kill_a_worker(checker))
    stuck, *rest = grading.result(timeout=60)
    assert stuck.reason == "too_many_steps"
    assert [g.verdict for g in rest] == [Verdict.RIGHT] * 4
    pool.shutdown()


def test_a_worker_that_always_dies_leaves_an_unknown_that_is_not_remembered(
    checker: Checker,
) -> None:
    checker.grade(*HARD)
    pool = ThreadPoolExecutor(1)
    grading = pool.submit(checker.grade, *STUCK)
    while not grading.done():
        _kill_a_worker(checker)
    assert grading.result().reason == "worker_died"
    assert checker.grade(*STUCK).reason == "too_many_steps"
    pool.shutdown()


def test_grades_are_given_in_order_while_more_pairs_are_read(checker: Checker) -> None:
    checker.grade(*HARD)
    read = 0

    def pairs() -> Iterator[tuple[str | None, str]]:
        nonlocal read
        for pair in [("1", "1"), (None, "1"), STUCK, *[("2", "2.0")] * 50]:
            read += 1
            yield pair

    grades = checker.grade_each(pairs(), ahead=20)
    assert (next(grades).verdict, read) == (Verdict.RIGHT, 1)
    assert (next(grades).reason, read) == ("no_answer", 2)
    assert next(grades).reason == "too_many_steps"
    assert 3 < read <= 22
    assert [grade.verdict for grade in grades] == [Verdict.RIGHT] * 50


@pytest.mark.slow
def test_a_worker_that_stands_still_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    checker = Checker(max_steps=200_000)
    checker.grade(*HARD)
    pool = ThreadPoolExecutor(1)
    with monkeypatch.context() as impatient:
        impatient.setattr("mclabel.answers.workers.pool.STALL_S", 8.0)
        grading = pool.submit(checker.grade, *STUCK)
        _wait_for_the_end([_suspend_a_worker(checker).pid])
    assert grading.result(timeout=60).reason == "too_many_steps"
    pool.shutdown()
    checker.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_that_ends_or_stops_is_replaced(
    checker: Checker, ending: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker.grade(*HARD)
    pid = checker.host_pid()
    assert pid is not None
    os.kill(pid, ending)
    pool = ThreadPoolExecutor(1)
    with monkeypatch.context() as impatient:
        impatient.setattr("mclabel.answers.workers.pool.STALL_S", 3.0)
        grading = pool.submit(checker.grade, *hard_pairs(1)[0])
        _wait_for_the_end([pid])  # a loaded machine gives its successor no answer as soon
    assert grading.result(timeout=60).verdict is Verdict.RIGHT
    pool.shutdown()


def _workers(checker: Checker) -> list[psutil.Process]:
    pid = checker.host_pid()
    return [] if pid is None else psutil.Process(pid).children()


def _kill_a_worker(checker: Checker) -> list[int]:
    for worker in _workers(checker):
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
            return [worker.pid]
    return []


def _suspend_a_worker(checker: Checker) -> psutil.Process:
    """One that stands still now: another may have ended before it was stopped."""
    while True:
        for worker in _workers(checker):
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.suspend()
                while (status := worker.status()) not in (
                    psutil.STATUS_STOPPED,
                    psutil.STATUS_ZOMBIE,
                ):
                    time.sleep(0.001)
                if status == psutil.STATUS_STOPPED:
                    return worker
        time.sleep(0.001)


@pytest.mark.slow
def test_memory_is_limited() -> None:
    checker = Checker(num_workers=1, memory_bytes=400 << 20, max_steps=200_000)
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    pool = ThreadPoolExecutor(1)
    grading = pool.submit(checker.grade, *STUCK)
    limits: set[int] = set()
    while not grading.done():
        for worker in _workers(checker):
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                limits.add(resource.prlimit(worker.pid, resource.RLIMIT_AS)[0])
    assert grading.result().verdict is Verdict.UNKNOWN
    pool.shutdown()
    assert 400 << 20 in limits
    assert checker.grade("\\sin(7^{9999999})", "1").verdict is not Verdict.RIGHT
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT
    checker.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["exit", "while busy"])
def test_workers_die_with_their_parent(ending: str, tmp_path: Path) -> None:
    how = {
        "exit": "pass",
        "while busy": (
            "import threading; threading.Thread(target=checker.grade, args=STUCK, daemon=True)"
            ".start()\nwhile not (workers := psutil.Process(checker.host_pid()).children()): pass\n"
            "print(workers[0].pid, flush=True); os.kill(os.getpid(), 9)"
        ),
    }[ending]
    script = f"""
        import os, psutil
        from mclabel.answers import Checker
        STUCK = {STUCK!r}
        checker = Checker()
        checker.grade(*{HARD!r})
        print(checker.host_pid(), flush=True)
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script) + how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pids = [int(word) for word in result.stdout.split()]
    assert pids, result.stderr
    _wait_for_the_end(pids)


def _wait_for_the_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("compile", (b"1+1", "<string>")),
        ("open", ("f", "w", 0)),
        ("open", ("f", None, os.O_RDWR)),
        ("os.system", (b"ls",)),
        ("subprocess.Popen", ("ls", [], None, None)),
        ("socket.connect", (None, None)),
        ("os.exec", ("ls", [], None)),
    ],
)
def test_a_worker_refuses_code_files_and_processes(
    event: str, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(PermissionError):
        refuse(event, arguments)
