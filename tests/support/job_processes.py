"""Labelling jobs in separate processes, and the processes and memory that they leave behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.commands import run_verb
from tests.support.exactness import check_exact
from tests.support.forked import Forked
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

TOKEN = "MCLABEL_TEST_TOKEN"
"""Environment variable that marks all processes that a command has started."""
HANGS_S = 1200
"""Seconds after which a wait counts as endless, even on a busy machine."""
NUM_PROBLEMS = 40
VLLM = [
    "problems.source=arith",
    "problems.limit=40",
    "policy.engine=vllm",
    "policy.engine.device=cpu",
]
VLLM += ["policy.engine.kv_cache_gib=0.1", "policy.engine.max_live=64", "estimator.kind=fixed"]
# enough work that even a fast machine is still busy when it is stopped
VLLM += ["estimator.rollouts=16"]
EAGER = "policy.engine.engine_args={enforce_eager: true}"
"""Override that turns off compiling, which takes longer than most tests of vLLM."""


class Job(subprocess.Popen[str]):
    """A command in a separate session."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.token = str(folder)
        super().__init__(
            command,
            env={**os.environ, TOKEN: self.token},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def start(folder: Path, address: str, *more: str) -> Job:
    scripted = "policy.engine={kind: scripted, repeatable: false, delay_s: 0.3}"
    changes = [f"ray.address={address}", "ray.max_engines=2", "journal_s=1000", scripted, *more]
    return Job([sys.executable, "-m", "mclabel", *_label(folder, *changes)], folder)


def finish_job(folder: Path) -> None:
    """Finish the same job in this process, and check its output."""
    scripted = "policy.engine={kind: scripted, repeatable: false}"
    run_verb(_label(folder, "ray.address=none", scripted))
    check_exact(folder / "out", NUM_PROBLEMS)


def _label(folder: Path, *changes: str) -> list[str]:
    source = write_problems(folder, NUM_PROBLEMS)
    overrides = scripted_overrides(source, folder / "out", *changes)
    return ["label", str(write_config(folder)), *overrides]


def started_by(job: Job) -> list[psutil.Process]:
    """Return the processes of a command, including those whose parent has ended.

    A process is found by the command's session, or by the token in its environment if it has left
    the session. One of the two would not suffice, since a process that sets its title may overwrite
    its environment.
    """
    processes = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # the process has ended or belongs to another user
            if process.status() != psutil.STATUS_ZOMBIE and (
                os.getsid(process.pid) == job.pid or process.environ().get(TOKEN) == job.token
            ):
                processes.append(process)
    return processes


def vllm_engine(job: Job) -> psutil.Process | None:
    """Return the process of vLLM's engine, from early in its loading until it ends.

    The engine shares memory with its workers, which are its child processes. Its title cannot
    identify it. A title cannot be set if the first variable of the process's environment was
    changed, and Ray sets its workers' variables in a varying order.
    """
    sharing = {
        process.pid: process
        for process in started_by(job)
        if any(path.name.startswith("psm_") for path in _list_mapped_files(process))
    }
    for process in sharing.values():
        with suppress(psutil.Error):  # the process has ended
            if process.ppid() not in sharing:
                return process
    return None


def worker_actors() -> list[psutil.Process]:
    """Return the engine processes on clusters that this process or its child processes started."""
    processes = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # the process has ended
            if "WorkerActor" in " ".join(process.cmdline()):
                processes.append(process)
    return processes


def last_state(out: Path) -> dict[str, int]:
    """Return the last row of a run's progress; empty if the run has no rows yet."""
    file = out / "progress.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    state: dict[str, int] = json.loads(lines[-1]) if lines else {}
    return state


def wait_for_work(out: Path, job: subprocess.Popen[str]) -> None:
    wait_until(lambda: last_state(out).get("num_completions", 0) > 0, job)


def wait_for_journals(out: Path, job: subprocess.Popen[str]) -> None:
    """Wait until the job has a journal with samples of a block that is not done yet."""
    wait_until(lambda: bool(list(out.rglob("journals/**/*.gz"))), job)


def wait_for_engine(job: Job) -> None:
    """Wait until the job has started to load vLLM."""
    wait_until(lambda: vllm_engine(job) is not None, job)


def wait_until(holds: Callable[[], bool], *jobs: subprocess.Popen[str] | Forked) -> None:
    """Wait until a condition holds, while all the given jobs keep running."""
    deadline = time.monotonic() + HANGS_S
    while not holds():
        for job in jobs:
            assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)


def check_nothing_is_left(job: Job, memory: set[Path], timeout_s: float = 60) -> None:
    """Check that a command leaves no processes and no shared memory behind.

    Args:
        job: command that has ended.
        memory: files that its processes had mapped (`shared_memory`); other files are ignored.
        timeout_s: seconds in which the rest may still end.
    """
    deadline = time.monotonic() + timeout_s
    while remaining := [*started_by(job), *(path for path in memory if path.exists())]:
        assert time.monotonic() < deadline, remaining
        time.sleep(0.2)


def shared_memory(job: Job) -> set[Path]:
    """Return the files in /dev/shm that a command's processes map now; empty without /proc."""
    mapped = {path for process in started_by(job) for path in _list_mapped_files(process)}
    return {path for path in mapped if path.exists()}


def _list_mapped_files(process: psutil.Process) -> set[Path]:
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}
