"""Labelling jobs in processes of their own, and what they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

TOKEN = "MCLABEL_TEST_TOKEN"
"""Environment variable that marks all that a command has started."""
NUM_PROBLEMS = 40
VLLM = [
    "problems.source=arith",
    "problems.limit=40",
    "policy.engine=vllm",
    "policy.engine.device=cpu",
]
VLLM += ["policy.engine.kv_cache_gib=0.1", "policy.engine.max_live=64", "estimator.kind=fixed"]
VLLM += ["estimator.rollouts=16"]  # a fast machine, too, is still at work when it is stopped


def start(folder: Path, address: str, *more: str) -> subprocess.Popen[str]:
    source = write_problems(folder, NUM_PROBLEMS)
    scripted = "policy.engine={kind: scripted, repeatable: false, delay_s: 0.3}"
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


def started_as(title: str, folder: Path) -> list[psutil.Process]:
    """Those of them that have this in their title."""
    found = []
    for process in started_by(folder):
        with suppress(psutil.Error):  # it may have ended
            if title in " ".join(process.cmdline()):
                found.append(process)
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


def wait_for_journals(out: Path, job: subprocess.Popen[str], timeout_s: float = 240) -> None:
    """Until the job has kept what it sampled for a block that is not yet done."""
    deadline = time.monotonic() + timeout_s
    while not list(out.rglob("journals/**/*.gz")):
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_process(
    title: str, folder: Path, job: subprocess.Popen[str], timeout_s: float = 240
) -> None:
    """Until the command has started a process of this title."""
    deadline = time.monotonic() + timeout_s
    while not started_as(title, folder):
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.2)


def check_nothing_is_left(folder: Path, memory: set[Path], timeout_s: float = 20) -> None:
    """No process, and none of its shared memory, after a moment in which they may end.

    Args:
        folder: of the command.
        memory: that its processes had mapped (`shared_memory`); other programs have their own.
        timeout_s: of the moment.
    """
    deadline = time.monotonic() + timeout_s
    while left := [*started_by(folder), *(path for path in memory if path.exists())]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def shared_memory(folder: Path) -> set[Path]:
    """What the processes of a command have mapped in /dev/shm now; none without /proc."""
    found: set[Path] = set()
    for process in started_by(folder):
        with suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
            found |= {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}
    return {path for path in found if path.exists()}
