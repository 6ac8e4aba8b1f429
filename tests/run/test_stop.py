"""Ctrl-C and SIGTERM, with real processes: once in order, twice at once, nothing left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from mclabel.core.stop import SAME_S
from tests.support.job_processes import (
    EAGER,
    HANGS_S,
    VLLM,
    check_nothing_is_left,
    go_on,
    shared_memory,
    start,
    vllm_engine,
    wait_for_engine,
    wait_for_work,
)

RAY = pytest.param("local", marks=pytest.mark.ray)


@pytest.mark.slow
@pytest.mark.parametrize("address", ["none", RAY])
def test_twice_ends_at_once(tmp_path: Path, address: str) -> None:
    """While the first is being answered: a store that hangs holds the flush of the journals."""
    out = tmp_path / "out"
    hang = tmp_path / "sitecustomize.py"
    hang.write_text(HANG)
    os.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    try:
        job = start(tmp_path, address)
    finally:
        os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].partition(os.pathsep)[2]
    wait_for_work(out, job)
    memory = shared_memory(job)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGTERM)  # so soon after, it is the same
    time.sleep(2 * SAME_S)
    assert job.poll() is None
    job.send_signal(signal.SIGTERM)
    output, _ = job.communicate(timeout=5)
    assert job.returncode == 128 + signal.SIGTERM, output
    check_nothing_is_left(job, memory)
    go_on(tmp_path)


HANG = """
import sys, time
if any(word == "mclabel" or word.endswith("worker.py") for word in sys.orig_argv):
    import mclabel.run.shards.journal as journal
    journal.write_journal = lambda *arguments: time.sleep(600)
"""
"""Ray's other processes would import the package for nothing."""


@pytest.mark.vllm
@pytest.mark.ray
@pytest.mark.parametrize(
    ("when", "times", "more"),
    [("at work", 1, []), ("at work", 2, [EAGER]), ("loading", 1, [EAGER])],
)
def test_vllm_in_an_actor_leaves_neither_processes_nor_shared_memory(
    tmp_path: Path, when: str, times: int, more: list[str]
) -> None:
    """Once with the processes that compile a model."""
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
        time.sleep(2 * SAME_S)
    output, _ = job.communicate(timeout=HANGS_S)
    assert job.returncode == 128 + signal.SIGINT, output
    check_nothing_is_left(job, memory)
