"""Two drivers on one output: exact, and the second says so."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from exactness import check_exact
from scripted_jobs import scripted_overrides, write_config, write_problems

from mclabel.data.shards.store import Store
from mclabel.work.drivers import STALE_S, DriverSign

NUM_PROBLEMS = 24
SAYS = "another driver is at work on this output"


def start(folder: Path) -> subprocess.Popen[str]:
    """A driver whose texts differ from those of every other."""
    more = [
        "ray.address=none",
        "journal_s=0.2",
        "policy.scripted={repeatable: false, delay_s: 0.1}",
    ]
    source = folder / "problems.jsonl"
    return subprocess.Popen(
        [
            *[sys.executable, "-m", "mclabel", "label", str(folder / "empty.yaml")],
            *scripted_overrides(source, folder / "out", *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_signs(out: Path, count: int, driver: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while len(list(out.glob("drivers/*"))) < count:
        assert driver.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("killed", [False, True])
def test_two_drivers_at_the_same_time(tmp_path: Path, killed: bool) -> None:
    write_problems(tmp_path, NUM_PROBLEMS)
    write_config(tmp_path)
    out = tmp_path / "out"
    first = start(tmp_path)
    wait_for_signs(out, 1, first)
    first.send_signal(signal.SIGSTOP)  # however long the second one takes to start
    second = start(tmp_path)
    wait_for_signs(out, 2, second)
    first.send_signal(signal.SIGCONT)
    if killed:
        time.sleep(2)  # both are at work
        first.send_signal(signal.SIGKILL)
    outputs = [driver.communicate(timeout=120)[0] for driver in (first, second)]
    assert SAYS not in outputs[0] and SAYS in outputs[1].replace("\n", " ")
    assert [first.returncode, second.returncode] == [-signal.SIGKILL if killed else 0, 0], outputs
    check_exact(out, NUM_PROBLEMS)
    third = start(tmp_path)
    output, _ = third.communicate(timeout=60)
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
        store.create(f"drivers/{name}.json", json.dumps(said).encode())
    store.create("drivers/torn.json", b"{")
    old = time.time() - STALE_S - 5
    os.utime(tmp_path / "drivers" / "stale.json", (old, old))
    with DriverSign(store) as sign, caplog.at_level(logging.WARNING):
        sign.warn()
        assert len(store.names("drivers")) == 3
    assert store.names("drivers") == ["drivers/away.json", "drivers/here.json"]
    assert SAYS in caplog.text and "another" in caplog.text and str(os.getpid()) in caplog.text


def test_nobody_else_is_nothing_to_say(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(str(tmp_path))
    with DriverSign(store) as sign:
        sign.warn()
    assert not caplog.records and store.names("drivers") == []
