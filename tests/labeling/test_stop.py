"""Ctrl-C and SIGTERM, with real processes: once in order, twice at once, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from exactness import check_exact
from scripted_jobs import scripted_overrides, write_config, write_problems

from mclabel.data.store import Store
from mclabel.labeling.stop import SAME_S

TOKEN = "MCLABEL_TEST_TOKEN"
"""Environment variable that marks all that a command has started."""
NUM_PROBLEMS = 40
VLLM = ["problems.source=arith", "problems.limit=40", "policy.engine=vllm", "policy.device=cpu"]
VLLM += ["policy.kv_cache_gib=0.1", "policy.max_live=64", "estimator.kind=fixed"]


def start(folder: Path, address: str, *more: str) -> subprocess.Popen[str]:
    source = write_problems(folder, NUM_PROBLEMS)
    scripted = "policy.scripted={repeatable: false, delay_s: 0.3}"
    changes = [f"ray.address={address}", "ray.max_engines=2", "journal_s=1000", scripted, *more]
    return subprocess.Popen(
        [
            *[sys.executable, "-m", "mclabel", "label", str(write_config(folder))],
            *scripted_overrides(source, folder / "out", *changes),
        ],
        env={**os.environ, TOKEN: str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def started_by(folder: Path) -> list[psutil.Process]:
    """Processes of a command, those that were left by others that ended included."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(TOKEN) == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return found


def wait_for_work(out: Path, job: subprocess.Popen[str], timeout_s: float = 240) -> None:
    deadline = time.monotonic() + timeout_s
    file = out / "progress.jsonl"
    while True:
        lines = file.read_text().splitlines() if file.is_file() else []
        if lines and json.loads(lines[-1])["num_completions"] > 0:
            return
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def check_nothing_is_left(folder: Path, shared: set[str], timeout_s: float = 20) -> None:
    """No process, and no shared memory of one, after a moment in which they may end."""
    deadline = time.monotonic() + timeout_s
    while left := [*started_by(folder), *(shared_memory() - shared)]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def shared_memory() -> set[str]:
    folder = Path("/dev/shm")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


RAY = pytest.param("local", marks=pytest.mark.ray)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("address", ["none", RAY])
def test_once_keeps_what_is_whole_and_says_how_to_resume(
    tmp_path: Path, address: str, number: signal.Signals
) -> None:
    shared, out = shared_memory(), tmp_path / "out"
    job = start(tmp_path, address)
    wait_for_work(out, job)
    if number == signal.SIGINT:  # a terminal sends it to all of the group
        os.killpg(job.pid, number)
    else:
        job.send_signal(number)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 128 + number, output
    said = " ".join(output.split())
    assert f"stopped by {number.name}: what was whole is kept. Run the same command again" in said
    assert "Traceback" not in output
    check_nothing_is_left(tmp_path, shared)
    assert list((out / "journals").rglob("*.gz"))
    assert not list((out / "drivers").glob("*"))
    labels = [name.split("/")[1].split(".")[0] for name in Store(str(out)).names("labels")]
    rollouts = [name.split("/")[1].split(".")[0] for name in Store(str(out)).names("rollouts")]
    assert sorted(labels) == sorted(rollouts)  # none was cut between the two
    assert not {p.parent.name for p in (out / "journals").rglob("*.gz")} & set(labels)
    again = start(tmp_path, "none", "policy.scripted={repeatable: false}")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    check_exact(out, NUM_PROBLEMS)
    assert json.loads((out / "progress.jsonl").read_text().splitlines()[-1])["num_replayed"] > 0


@pytest.mark.parametrize("address", ["none", RAY])
def test_twice_ends_at_once(tmp_path: Path, address: str) -> None:
    """While the first is being answered: a store that hangs holds the flush of the journals."""
    shared, out = shared_memory(), tmp_path / "out"
    hang = tmp_path / "sitecustomize.py"
    hang.write_text(HANG)
    os.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    try:
        job = start(tmp_path, address)
    finally:
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
    wait_for_work(out, job)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGTERM)  # so soon after, it is the same
    time.sleep(2 * SAME_S)
    assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=5)
    assert job.returncode == 128 + signal.SIGTERM, output
    check_nothing_is_left(tmp_path, shared)
    again = start(tmp_path, "none", "policy.scripted={repeatable: false}")
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0, output
    check_exact(out, NUM_PROBLEMS)


HANG = """
import mclabel.labeling.journal as journal, time
journal.write_journal = lambda *arguments: time.sleep(600)
"""


@pytest.mark.vllm
@pytest.mark.ray
@pytest.mark.parametrize("times", [1, 2])
def test_vllm_in_an_actor_leaves_neither_processes_nor_shared_memory(
    tmp_path: Path, times: int
) -> None:
    shared, out = shared_memory(), tmp_path / "out"
    job = start(tmp_path, "local", *VLLM, "ray.max_engines=1")
    wait_for_work(out, job)
    assert shared_memory() - shared, "vLLM shares memory with its engine"
    for _ in range(times):
        os.killpg(job.pid, signal.SIGINT)
        time.sleep(2 * SAME_S)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 128 + signal.SIGINT, output
    check_nothing_is_left(tmp_path, shared)
