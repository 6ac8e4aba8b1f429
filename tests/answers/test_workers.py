"""The worker pool: kills, replacements, limits, and the shutdown of dependent processes."""

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
from mclabel.answers.workers.host import refuse_forbidden_event
from mclabel.core.records import Verdict

HARD = ("\\sin 2x", "2\\sin x\\cos x")
"""A true pair that only a worker can decide."""
STUCK = (
    "(a+b+c+d+e)^{50}",
    "(a+b)(a+b+c+d+e)^{49}+(c+d+e)(a+b+c+d+e)^{49}",
)
"""A pair that exceeds every step limit."""


def hard_pairs(count: int) -> list[tuple[str, str]]:
    """Return distinct true pairs that only a worker can decide."""
    return [(f"{n}+\\cos 2x", f"{n + 1}-2\\sin^2 x") for n in range(count)]


@pytest.fixture(scope="module")
def running() -> Iterator[Checker]:
    """Yield one checker for several tests, because its host costs more CPU than most pairs."""
    checker = Checker(num_workers=2, max_steps=200_000)
    yield checker
    checker.close()


@pytest.fixture
def checker(running: Checker) -> Checker:
    """Return the running checker with an empty memo."""
    running._memo.clear()
    return running


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Yield a thread in which a test grades a pair while it does something else."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.mark.slow
def test_nothing_starts_before_it_is_needed_and_close_ends_it(pool: ThreadPoolExecutor) -> None:
    checker = Checker(num_workers=2, max_steps=200_000)
    assert checker.grade("1/2", "0.5").verdict is Verdict.RIGHT
    assert checker.grade("x+1", "1+x").verdict is Verdict.RIGHT
    assert checker.host_pid() is None
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    assert checker.host_pid() is not None
    grading = pool.submit(checker.grade, *STUCK)
    while not (workers := _list_workers(checker)):
        time.sleep(0.001)
    pids = [checker.host_pid() or 0, *(worker.pid for worker in workers)]
    checker.close()
    assert grading.result(timeout=60).reason == "no_worker"
    wait_for_the_end(pids)
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT
    checker.close()


@pytest.mark.slow
def test_workers_killed_from_outside_lose_nothing(
    checker: Checker, pool: ThreadPoolExecutor
) -> None:
    """Pairs of killed workers are retried alone, and their undecided results are not remembered."""
    checker.grade(*HARD)
    # at least one worker is busy
    grading = pool.submit(checker.grade_many, [STUCK, *hard_pairs(4)])
    killed: set[int] = set()
    while len(killed) < 2:
        assert not grading.done()
        killed.update(_kill_a_worker(checker))
    stuck, *rest = grading.result(timeout=60)
    assert stuck.reason == "too_many_steps"
    assert [g.verdict for g in rest] == [Verdict.RIGHT] * 4


def test_a_worker_that_always_dies_leaves_an_unknown_that_is_not_remembered(
    checker: Checker, pool: ThreadPoolExecutor
) -> None:
    checker.grade(*HARD)
    grading = pool.submit(checker.grade, *STUCK)
    while not grading.done():
        _kill_a_worker(checker)
    assert grading.result().reason == "worker_died"
    assert checker.grade(*STUCK).reason == "too_many_steps"


@pytest.mark.slow
def test_a_stopped_worker_delays_nobody_else(checker: Checker, pool: ThreadPoolExecutor) -> None:
    """A stopped worker resembles one without CPU time.

    It continues later, with the same verdict.
    """
    for _ in range(20):
        checker._memo.clear()
        checker.grade(*HARD)
        wait_for_the_end([worker.pid for worker in _list_workers(checker)])
        grading = pool.submit(checker.grade, *STUCK)
        worker = _suspend_a_worker(checker)
        assert all(g.verdict is Verdict.RIGHT for g in checker.grade_many(hard_pairs(2)))
        # the worker had already finished when it was stopped, so try again
        had_ended = grading.done()
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.resume()
        assert grading.result(timeout=60).reason == "too_many_steps"
        if not had_ended:
            break
    assert not had_ended


def test_grades_are_given_in_order_while_more_pairs_are_read(checker: Checker) -> None:
    checker.grade(*HARD)
    read = 0

    def yield_pairs() -> Iterator[tuple[str | None, str]]:
        nonlocal read
        for pair in [("1", "1"), (None, "1"), STUCK, *[("2", "2.0")] * 50]:
            read += 1
            yield pair

    grades = checker.grade_each(yield_pairs(), max_ahead=20)
    assert (next(grades).verdict, read) == (Verdict.RIGHT, 1)
    assert (next(grades).reason, read) == ("no_answer", 2)
    assert next(grades).reason == "too_many_steps"
    assert 3 < read <= 22
    assert [grade.verdict for grade in grades] == [Verdict.RIGHT] * 50


@pytest.mark.slow
def test_a_worker_that_stands_still_is_replaced(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Checker(max_steps=200_000)
    checker.grade(*HARD)
    with monkeypatch.context() as impatient:
        impatient.setattr("mclabel.answers.workers.pool.STALL_S", 8.0)
        grading = pool.submit(checker.grade, *STUCK)
        wait_for_the_end([_suspend_a_worker(checker).pid])
    assert grading.result(timeout=60).reason == "too_many_steps"
    checker.close()


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGSTOP])
def test_a_host_that_ends_or_stops_is_replaced(
    checker: Checker,
    pool: ThreadPoolExecutor,
    ending: signal.Signals,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checker.grade(*HARD)
    pid = checker.host_pid()
    assert pid is not None
    os.kill(pid, ending)
    with monkeypatch.context() as impatient:
        impatient.setattr("mclabel.answers.workers.pool.STALL_S", 3.0)
        grading = pool.submit(checker.grade, *hard_pairs(1)[0])
        wait_for_the_end([pid])  # on a loaded machine, the next host does not answer as soon
    assert grading.result(timeout=60).verdict is Verdict.RIGHT


def _list_workers(checker: Checker) -> list[psutil.Process]:
    pid = checker.host_pid()
    return [] if pid is None else psutil.Process(pid).children()


def _kill_a_worker(checker: Checker) -> list[int]:
    for worker in _list_workers(checker):
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.kill()
            return [worker.pid]
    return []


def _suspend_a_worker(checker: Checker) -> psutil.Process:
    """Suspend a worker and return it; a worker that ended before its suspension is skipped."""
    while True:
        for worker in _list_workers(checker):
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
def test_memory_is_limited(pool: ThreadPoolExecutor) -> None:
    checker = Checker(num_workers=1, memory_bytes=400 << 20, max_steps=200_000)
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    grading = pool.submit(checker.grade, *STUCK)
    limits: set[int] = set()
    while not grading.done():
        for worker in _list_workers(checker):
            with contextlib.suppress(ProcessLookupError):  # the worker has ended in between
                limits.add(resource.prlimit(worker.pid, resource.RLIMIT_AS)[0])
    assert grading.result().verdict is Verdict.UNKNOWN
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
    wait_for_the_end(pids)


def wait_for_the_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 60
    while any(_is_running(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("event", "arguments", "is_refused"),
    [
        ("compile", (b"1+1", "<string>"), True),
        ("open", ("f", "w", 0), True),
        ("open", ("f", None, os.O_RDWR), True),
        ("os.system", (b"ls",), True),
        ("subprocess.Popen", ("ls", [], None, None), True),
        ("socket.connect", (None, None), True),
        ("os.exec", ("ls", [], None), True),
        ("open", ("f", "r", 0), False),
        ("compile", (b"1+1", "/lib/module.py"), False),
        ("import", ("sympy", None, None, None, None), False),
    ],
)
def test_a_worker_refuses_code_files_and_processes(
    event: str, arguments: tuple[object, ...], is_refused: bool
) -> None:
    with pytest.raises(PermissionError) if is_refused else contextlib.nullcontext():
        refuse_forbidden_event(event, arguments)


@pytest.mark.slow
def test_the_host_can_be_tried_by_hand() -> None:
    """The error message for a host that does not start recommends this command."""
    command = [sys.executable, "-m", "mclabel.answers.workers.host"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (tried.returncode, tried.stdout) == (0, "the answer checker's workers can start here\n")


@pytest.mark.slow
def test_the_caller_never_imports_sympy() -> None:
    script = (
        "import sys; from mclabel.answers import grade; grade('x+1', '1+x'); "
        f"grade(*{HARD!r}); print([m for m in ('sympy', 'pint', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
