"""Labelling jobs in processes of their own, and what they leave behind."""

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
from tests.support.scripted_jobs import scripted_overrides, write_config, write_problems

TOKEN = "MCLABEL_TEST_TOKEN"
"""Environment variable that marks all that a command has started."""
HANGS_S = 1200
"""A wait that takes longer, however busy the machine is, will not end."""
NUM_PROBLEMS = 40
VLLM = [
    "problems.source=arith",
    "problems.limit=40",
    "policy.engine=vllm",
    "policy.engine.device=cpu",
]
VLLM += ["policy.engine.kv_cache_gib=0.1", "policy.engine.max_live=64", "estimator.kind=fixed"]
VLLM += ["estimator.rollouts=16"]  # a fast machine, too, is still at work when it is stopped
EAGER = "policy.engine.engine_args={enforce_eager: true}"
"""Without compiling, which costs more than most tests of vLLM take."""


class Job(subprocess.Popen[str]):
    """A command, in a session of its own."""

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


def go_on(folder: Path) -> None:
    """The same job to its end, in this process."""
    scripted = "policy.engine={kind: scripted, repeatable: false}"
    run_verb(_label(folder, "ray.address=none", scripted))
    check_exact(folder / "out", NUM_PROBLEMS)


def _label(folder: Path, *changes: str) -> list[str]:
    source = write_problems(folder, NUM_PROBLEMS)
    overrides = scripted_overrides(source, folder / "out", *changes)
    return ["label", str(write_config(folder)), *overrides]


def started_by(job: Job) -> list[psutil.Process]:
    """Processes of a command, those that were left by others that ended included.

    They are in its session, or have left it with the token in their environment. One of the two
    would not do: a process that sets its title may write over its environment.
    """
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # it has ended, or is another user's
            if process.status() != psutil.STATUS_ZOMBIE and (
                os.getsid(process.pid) == job.pid or process.environ().get(TOKEN) == job.token
            ):
                found.append(process)
    return found


def vllm_engine(job: Job) -> psutil.Process | None:
    """The process of vLLM's engine, from early in its loading until it ends.

    It shares memory with its workers, which are its children. Its title does not tell: it cannot be
    set if the first variable of the process's environment was changed before, and Ray gives its
    workers theirs in an order that varies.
    """
    sharing = {
        process.pid: process
        for process in started_by(job)
        if any(path.name.startswith("psm_") for path in _mapped(process))
    }
    for process in sharing.values():
        with suppress(psutil.Error):  # it has ended
            if process.ppid() not in sharing:
                return process
    return None


def worker_actors() -> list[psutil.Process]:
    """Engines on the clusters that this process, or one that it started, has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it has ended
            if "WorkerActor" in " ".join(process.cmdline()):
                found.append(process)
    return found


def last_state(out: Path) -> dict[str, int]:
    """The last row of a run's progress, if it has any yet."""
    file = out / "progress.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    state: dict[str, int] = json.loads(lines[-1]) if lines else {}
    return state


def wait_for_work(out: Path, job: subprocess.Popen[str]) -> None:
    _wait_until(lambda: last_state(out).get("num_completions", 0) > 0, job)


def wait_for_journals(out: Path, job: subprocess.Popen[str]) -> None:
    """Until the job has kept what it sampled for a block that is not yet done."""
    _wait_until(lambda: bool(list(out.rglob("journals/**/*.gz"))), job)


def wait_for_engine(job: Job) -> None:
    """Until the job loads vLLM, or has loaded it."""
    _wait_until(lambda: vllm_engine(job) is not None, job)


def _wait_until(holds: Callable[[], bool], job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def check_nothing_is_left(job: Job, memory: set[Path], timeout_s: float = 60) -> None:
    """No process, and none of its shared memory, after a moment in which they may end.

    Args:
        job: that has ended.
        memory: that its processes had mapped (`shared_memory`); other programs have their own.
        timeout_s: of the moment.
    """
    deadline = time.monotonic() + timeout_s
    while left := [*started_by(job), *(path for path in memory if path.exists())]:
        assert time.monotonic() < deadline, left
        time.sleep(0.2)


def shared_memory(job: Job) -> set[Path]:
    """What the processes of a command have mapped in /dev/shm now; none without /proc."""
    found = {path for process in started_by(job) for path in _mapped(process)}
    return {path for path in found if path.exists()}


def _mapped(process: psutil.Process) -> set[Path]:
    try:
        maps = Path(f"/proc/{process.pid}/maps").read_text(errors="replace")
    except OSError:
        return set()
    return {Path(name) for name in re.findall(r"/dev/shm/\S+", maps)}
