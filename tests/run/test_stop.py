"""Ctrl-C and SIGTERM with real processes, and engines that stop without a message."""

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

from mclabel.core.stop import REPEAT_IGNORED_S
from mclabel.run.shards.rejects import FILE
from mclabel.run.shards.store import Store
from tests.support.exactness import check_exact, check_solutions
from tests.support.job_processes import (
    EAGER,
    HANGS_S,
    VLLM,
    check_nothing_is_left,
    finish_job,
    last_state,
    shared_memory,
    start,
    vllm_engine,
    wait_for_engine,
    wait_for_journals,
    wait_for_work,
    worker_actors,
)
from tests.support.scripted_jobs import (
    run_label_job,
    scripted_overrides,
    write_config,
    write_problems,
)

RAY = pytest.param("local", marks=pytest.mark.ray)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["none", RAY])
def test_twice_ends_at_once(tmp_path: Path, address: str) -> None:
    """A hanging store blocks the flush of the journals while the first signal is handled."""
    out = tmp_path / "out"
    (tmp_path / "sitecustomize.py").write_text(HANG)
    os.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    try:
        job = start(tmp_path, address)
    finally:
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
    wait_for_work(out, job)
    memory = shared_memory(job)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGTERM)  # so soon after the first, it counts as the same signal
    time.sleep(2 * REPEAT_IGNORED_S)
    assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=5)
    assert job.returncode == 128 + signal.SIGTERM, output
    check_nothing_is_left(job, memory)
    finish_job(tmp_path)


HANG = """
import sys, time
if any(word == "mclabel" or word.endswith("worker.py") for word in sys.orig_argv):
    import mclabel.run.shards.journal as journal
    journal.write_journal = lambda *arguments: time.sleep(600)
"""
"""A `sitecustomize` in which writing a journal hangs. Only processes of mclabel patch the journal,
because importing the package would slow down Ray's other processes."""


@pytest.mark.vllm
@pytest.mark.ray
@pytest.mark.parametrize(
    ("when", "times", "more"),
    [("at work", 1, []), ("loading", 2, [EAGER])],
)
def test_vllm_in_an_actor_leaves_neither_processes_nor_shared_memory(
    tmp_path: Path, when: str, times: int, more: list[str]
) -> None:
    """One of the cases also starts the processes that compile a model."""
    out = tmp_path / "out"
    job = start(tmp_path, "local", *VLLM, *more, "ray.max_engines=1")
    if when == "loading":
        wait_for_engine(job)
    else:
        wait_for_work(out, job)
        assert vllm_engine(job) is not None
    memory = shared_memory(job)
    for _ in range(times):
        os.killpg(job.pid, signal.SIGINT)
        time.sleep(2 * REPEAT_IGNORED_S)
    output, _ = job.communicate(timeout=HANGS_S)
    assert job.returncode == 128 + signal.SIGINT, output
    check_nothing_is_left(job, memory)


FLOOR = "ray.stall_s=1"


@pytest.mark.ray
def test_a_stopped_process_is_replaced(tmp_path: Path, shared_cluster: str) -> None:
    """After SIGSTOP, neither the engine nor anything else in its process continues."""
    source, out = write_problems(tmp_path, 24), tmp_path / "out"
    scripted = "policy.engine={kind: scripted, repeatable: false, delay_s: 2.0}"
    more = ["ray.min_engines=2", "ray.max_engines=2"]  # so that both engines have blocks
    more.append(f"ray.address={shared_cluster}")
    more += ["journal_s=0.2", "estimator.kind=fixed", FLOOR, scripted]
    driver = subprocess.Popen(
        [
            *[sys.executable, "-m", "mclabel", "label", str(write_config(tmp_path))],
            *scripted_overrides(source, out, *more),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wait_for_journals(out, driver)
    stopped = worker_actors()[0]
    stopped.send_signal(signal.SIGSTOP)
    output, _ = driver.communicate(timeout=400)
    assert driver.returncode == 0, output
    assert not stopped.is_running()
    check_exact(out, 24)
    assert last_state(out)["num_failures"] >= 1
    assert "produced no token and did not respond for" in output and "it is replaced" in output


@pytest.mark.ray
def test_a_problem_under_which_engines_hang_is_set_aside(tmp_path: Path) -> None:
    source, out = tmp_path / "problems.jsonl", tmp_path / "out"
    rows = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]{' [hang]' * (i == 1)}", "answer": str(i)}
        for i in range(8)
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    more = ["ray.max_engines=1", "journal_s=0.2", "estimator.kind=fixed", FLOOR]
    more.append("policy.engine={kind: scripted, repeatable: false, hang: true}")
    assert run_label_job(scripted_overrides(source, out, *more)).num_rejected == 1
    check_solutions(Store(str(out)), [0, *range(2, 8)])
    (row,) = [json.loads(line) for line in (out / FILE).read_text().splitlines()]
    assert (row["problem_id"], row["reason"]) == ("p1", "kills_engine")
    assert "produced no token and did not respond for" in row["detail"]


@pytest.mark.ray
def test_an_actor_that_survives_every_kill_is_left_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The actor behaves as if it were in a kernel call that never returns.

    It stays on its node, and the job continues.
    """
    for name in ("EXIT_S", "KILL_S"):  # the waits end before the process can be gone
        monkeypatch.setattr(f"mclabel.run.ray_run.{name}", -1.0)
    source, out = write_problems(tmp_path, 8), tmp_path / "out"
    more = ["ray.max_engines=1", "ray.num_cpus=0.5", "journal_s=0.2", "estimator.kind=fixed", FLOOR]
    more.append("policy.engine={kind: scripted, repeatable: false, delay_s: 0.05, hang_after: 250}")
    run_label_job(scripted_overrides(source, out, *more))
    check_exact(out, 8)


@pytest.mark.slow
def test_without_ray_a_silent_engine_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, out = write_problems(tmp_path, 4), tmp_path / "out"
    more = ["ray.address=none", "ray.stall_s=0.1", "budget.max_hours=0.001"]
    more.append("policy.engine={kind: scripted, hang_after: 0}")
    changes = scripted_overrides(source, out, *more)
    with caplog.at_level(logging.WARNING):
        report = run_label_job(changes)
    assert report.stopped_by == "budget.max_hours=0.001"
    _silent, stopped = [r.message for r in caplog.records if "produced no token" in r.message]
    assert "ray.address=local" in stopped and last_state(out)["num_silent"] == 1
