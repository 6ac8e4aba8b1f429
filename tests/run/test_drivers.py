"""Two drivers on one output: exact, and the second says so."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil
import pytest

from mclabel.run import job
from mclabel.run.job import STALE_S, DriverSign
from mclabel.run.shards.digest import with_digest
from mclabel.run.shards.store import Store
from tests.support.exactness import check_exact
from tests.support.forked import Forked
from tests.support.scripted_jobs import scripted_overrides, write_problems

NUM_PROBLEMS = 24
HANGS_S = 300.0
SAYS = "another process runs a job on this output"


def start(folder: Path) -> Forked:
    """A driver whose texts differ from those of every other."""
    more = [
        "ray.address=none",
        "journal_s=0.2",
        "policy.engine={kind: scripted, repeatable: false, delay_s: 0.1}",
    ]
    source = folder / "problems.jsonl"
    return Forked("label", "/dev/null", *scripted_overrides(source, folder / "out", *more))


def journals(out: Path) -> dict[Path, int]:
    """Bytes of each journal."""
    sizes = {}
    for path in out.glob("journals/*/*"):
        with contextlib.suppress(FileNotFoundError):  # its block is committed
            sizes[path] = path.stat().st_size
    return sizes


def wait_until(is_so: Callable[[], bool], *drivers: Forked) -> None:
    """Wait for a condition that comes while these drivers run."""
    deadline = time.monotonic() + HANGS_S
    while not is_so():
        assert [driver.poll() for driver in drivers] == [None] * len(drivers)
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_two_drivers_at_the_same_time(tmp_path: Path, killed: bool) -> None:
    write_problems(tmp_path, NUM_PROBLEMS)
    out = tmp_path / "out"
    first = start(tmp_path)
    wait_until(lambda: bool(journals(out)), first)
    first.send_signal(signal.SIGSTOP)  # else it may have ended before the second one begins
    wait_until(lambda: psutil.Process(first.pid).status() == psutil.STATUS_STOPPED, first)
    of_first = journals(out)
    (sign,) = out.glob("drivers/*.json")
    second = start(tmp_path)

    def second_is_at_work() -> bool:
        os.utime(sign)  # the first one cannot do so itself
        return bool(journals(out).keys() - of_first.keys())

    wait_until(second_is_at_work, first, second)
    assert len(list(out.glob("drivers/*.json"))) == 2
    first.send_signal(signal.SIGCONT)
    if killed:
        wait_until(lambda: not of_first.items() <= journals(out).items(), first)  # both are at work
        first.send_signal(signal.SIGKILL)
    outputs = [driver.communicate(timeout=HANGS_S)[0] for driver in (first, second)]
    assert SAYS not in outputs[0] and SAYS in outputs[1].replace("\n", " ")
    assert [first.returncode, second.returncode] == [-signal.SIGKILL if killed else 0, 0], outputs
    check_exact(out, NUM_PROBLEMS)
    third = start(tmp_path)
    output, _ = third.communicate(timeout=HANGS_S)
    assert third.returncode == 0 and SAYS not in output
    check_exact(out, NUM_PROBLEMS)
    assert not [p for folder in ("drivers", "journals") for p in (out / folder).rglob("*.*")]


def test_signs_of_the_dead_are_removed_and_those_of_the_living_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(str(tmp_path))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    signs = {
        "here": {"process": os.getpid(), "node": os.uname().nodename, "since": "x"},
        "gone": {"process": gone.pid, "node": os.uname().nodename, "since": "x"},
        "away": {"process": gone.pid, "node": "another", "since": "x"},
        "stale": {"process": gone.pid, "node": "another", "since": "x"},
    }
    for name, said in signs.items():
        store.create(f"drivers/{name}.json", json.dumps(with_digest(said)).encode())
    store.create("drivers/torn.json", b"{")
    old = time.time() - STALE_S - 5
    os.utime(tmp_path / "drivers" / "stale.json", (old, old))
    with DriverSign(store) as sign, caplog.at_level(logging.WARNING):
        sign.warn()
        assert len(store.names("drivers")) == 3
    assert store.names("drivers") == ["drivers/away.json", "drivers/here.json"]
    here = f"process {os.getpid()} on {os.uname().nodename}, since x"
    away = f"process {gone.pid} on another, since x"
    assert SAYS in caplog.text and f": {away}; {here}. Nothing is lost" in caplog.text


def test_a_sign_that_is_being_written_ends_before_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, begun, written = Store(str(tmp_path)), threading.Event(), threading.Event()
    replace = Store.replace

    def slow(self: Store, name: str, content: IO[bytes]) -> None:
        begun.set()
        time.sleep(0.5)
        replace(self, name, content)
        written.set()

    monkeypatch.setattr(job, "BEAT_S", 0.01)
    monkeypatch.setattr(Store, "replace", slow)
    with DriverSign(store):
        assert begun.wait(HANGS_S)
    assert written.is_set() and store.names("drivers") == []
    assert "driver-sign" not in [thread.name for thread in threading.enumerate()]
