"""The worker pool: kills, replacements, limits, and what dies with what."""

from __future__ import annotations

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
from mclabel.answers.host import _refuse
from mclabel.records import Verdict

HARD = ("\\sin 2x", "2\\sin x\\cos x")
"""A true pair that needs a worker."""
STUCK = (
    "(a+b+c+d+e)^{50}",
    "(a+b)(a+b+c+d+e)^{49}+(c+d+e)(a+b+c+d+e)^{49}",
)
"""A pair that overruns any budget."""


def hard_pairs(count: int) -> list[tuple[str, str]]:
    """Distinct true pairs that need a worker."""
    return [(f"{n}+\\cos 2x", f"{n + 1}-2\\sin^2 x") for n in range(count)]


@pytest.fixture
def checker() -> Iterator[Checker]:
    checker = Checker(budget_s=4.0, num_workers=2)
    yield checker
    checker.close()


def test_nothing_starts_before_it_is_needed(checker: Checker) -> None:
    assert checker.grade("1/2", "0.5").verdict is Verdict.RIGHT
    assert checker.grade("x+1", "1+x").verdict is Verdict.RIGHT
    assert checker.worker_pids() == []
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    assert len(checker.worker_pids()) == 1


def test_a_stuck_pair_costs_only_itself(checker: Checker) -> None:
    pairs = hard_pairs(20)
    pairs[5:5] = [STUCK]
    grades = checker.grade_many(pairs)
    assert [g.verdict for g in grades].count(Verdict.RIGHT) == 20
    assert (grades[5].verdict, grades[5].reason) == (Verdict.UNKNOWN, "timeout")


def test_a_worker_killed_from_outside_is_replaced(checker: Checker) -> None:
    checker.grade(*HARD)
    for pid in checker.worker_pids():
        os.kill(pid, signal.SIGKILL)
    assert all(g.verdict is Verdict.RIGHT for g in checker.grade_many(hard_pairs(8)))


def test_a_worker_killed_in_flight_loses_nothing(checker: Checker) -> None:
    checker.grade(*HARD)
    pool = ThreadPoolExecutor(1)
    grading = pool.submit(checker.grade_many, hard_pairs(20))
    time.sleep(0.2)
    for pid in checker.worker_pids():
        os.kill(pid, signal.SIGKILL)
    assert [g.verdict for g in grading.result(timeout=60)] == [Verdict.RIGHT] * 20
    pool.shutdown()


def test_the_host_killed_is_replaced(checker: Checker) -> None:
    checker.grade(*HARD)
    host = psutil.Process(checker.worker_pids()[0]).parent()
    assert host is not None
    workers = host.children()
    host.kill()
    _wait_for_the_end([worker.pid for worker in workers])
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT


def test_memory_is_limited() -> None:
    checker = Checker(budget_s=20.0, num_workers=1, memory_bytes=400 << 20)
    assert checker.grade(*HARD).verdict is Verdict.RIGHT
    pid = checker.worker_pids()[0]
    assert resource.prlimit(pid, resource.RLIMIT_AS)[0] == 400 << 20
    assert checker.grade("\\sin(7^{9999999})", "1").verdict is not Verdict.RIGHT
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT
    checker.close()


def test_close_ends_the_processes(checker: Checker) -> None:
    checker.grade(*HARD)
    worker = psutil.Process(checker.worker_pids()[0])
    host = worker.parent()
    checker.close()
    assert host is not None
    _wait_for_the_end([worker.pid, host.pid])
    assert checker.grade(*hard_pairs(1)[0]).verdict is Verdict.RIGHT


@pytest.mark.parametrize("ending", ["exit", "os._exit(1)", "SIGKILL", "while busy"])
def test_workers_die_with_their_parent(ending: str, tmp_path: Path) -> None:
    how = {
        "exit": "pass",
        "os._exit(1)": "os._exit(1)",
        "SIGKILL": "os.kill(os.getpid(), 9)",
        "while busy": (
            "import threading; threading.Thread(target=checker.grade, args=STUCK, daemon=True)"
            ".start(); time.sleep(0.5); os.kill(os.getpid(), 9)"
        ),
    }[ending]
    script = f"""
        import os, time
        from mclabel.answers import Checker
        STUCK = {STUCK!r}
        checker = Checker(budget_s=60.0)
        checker.grade(*{HARD!r})
        print(*checker.worker_pids(), flush=True)
        {how}
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pids = [int(word) for word in result.stdout.split()]
    assert pids, result.stderr
    _wait_for_the_end(pids)


def _wait_for_the_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
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
        _refuse(event, arguments)


def test_a_worker_reads_files_and_imports() -> None:
    _refuse("open", ("f", "r", 0))
    _refuse("compile", (b"1+1", "/lib/module.py"))
    _refuse("import", ("sympy", None, None, None, None))


def test_the_host_can_be_tried_by_hand() -> None:
    """What the message says that is printed where it does not start."""
    command = [sys.executable, "-m", "mclabel.answers.host"]
    tried = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (tried.returncode, tried.stdout) == (0, "the answer checker's workers can start here\n")


def test_the_caller_never_imports_sympy() -> None:
    script = (
        "import sys; from mclabel.answers import grade; grade('x+1', '1+x'); "
        f"grade(*{HARD!r}); print([m for m in ('sympy', 'pint', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"
