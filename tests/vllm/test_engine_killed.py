"""A job continues after a kill of vLLM's engine process, and its output is exact."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from mclabel.engines.vllm_memory import NOTE_S
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.job_processes import (
    EAGER,
    VLLM,
    check_nothing_is_left,
    shared_memory,
    start,
    started_by,
    vllm_engine,
    wait_for_engine,
    wait_for_journals,
    wait_for_work,
)

pytestmark = [pytest.mark.vllm, pytest.mark.ray]


def test_killed_once_its_blocks_are_done_by_the_next(tmp_path: Path) -> None:
    out = tmp_path / "out"
    more = [
        "ray.max_engines=1",
        "journal_s=0.5",
        "estimator.rollouts=4",
        "problems.limit=16",
        EAGER,
    ]
    job = start(tmp_path, "local", *VLLM, *more)
    wait_for_journals(out, job)
    engine = vllm_engine(job)
    assert engine is not None
    engine.kill()
    output, _ = job.communicate(timeout=400)
    assert job.returncode == 0, output
    rows = [(row.problem.id, row.solution.sample_index) for row in read_labels(Store(str(out)))]
    assert len(rows) == len(set(rows)) == 64
    state = json.loads((out / "progress.jsonl").read_text().splitlines()[-1])
    assert state["num_failures"] == 1 and state["num_replayed"] > 0
    assert not (out / "rejects.jsonl").exists()
    check_nothing_is_left(job, set())  # the memory of the killed engine itself may be left


def test_what_a_killed_job_leaves_is_freed_by_the_next_and_one_killed_alone_leaves_nothing(
    tmp_path: Path,
) -> None:
    """First all processes are killed at once, as Ray does, so none can free the memory."""
    job = start(tmp_path, "none", *VLLM, EAGER)
    wait_for_engine(job)
    time.sleep(2 * NOTE_S)
    memory = shared_memory(job)
    for process in started_by(job):
        process.kill()
    job.communicate(timeout=60)
    check_nothing_is_left(job, set())
    left_files = {path for path in memory if path.name.startswith("psm_") and path.exists()}
    assert left_files
    again = start(tmp_path, "none", *VLLM, EAGER)
    wait_for_work(tmp_path / "out", again)
    assert not any(path.exists() for path in left_files)
    again.kill()
    check_nothing_is_left(again, set())
    again.communicate(timeout=60)
