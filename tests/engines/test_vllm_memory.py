"""An engine's start frees the memory of killed engines only, and workers end with their owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mclabel.core.stop import list_processes_mapping_files
from mclabel.engines.vllm_memory import MEMORY, OWNER, SharedMemoryRecord, free_abandoned_memory

pytestmark = pytest.mark.skipif(
    not (MEMORY.is_dir() and Path("/proc/self/maps").exists() and hasattr(os, "pidfd_open")),
    reason="needs Linux with /dev/shm and /proc",
)

CHILD = """
import time
from multiprocessing.shared_memory import SharedMemory
memory = SharedMemory(create=True, size=1 << 20)
print(memory.name, flush=True)
time.sleep(600)
"""
ENGINE = f"""
import subprocess, sys, time
from mclabel.engines.vllm_memory import SharedMemoryRecord
memory = SharedMemoryRecord()
with memory.record_segments_during():
    child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE, text=True)
    name = child.stdout.readline().strip()
    (memory.folder / "weights").write_bytes(bytes(1000))
    if "loading" in sys.argv:
        time.sleep(1)
        print(memory.folder, name, child.pid, flush=True)
        time.sleep(600)
print(memory.folder, name, child.pid, flush=True)
time.sleep(600)
"""


class Engine:
    """A process group like vLLM's, with a child that shares memory."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENGINE, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        folder, name, child = self.process.stdout.readline().split()
        self.record, self.segment, self.child = Path(folder), MEMORY / name, int(child)

    @property
    def is_there(self) -> tuple[bool, bool]:
        """Return whether the memory segment exists, and whether its record exists."""
        return self.segment.exists(), self.record.exists()

    def kill_all(self) -> None:
        """Kill the whole group, also the child's resource tracker, as Ray and containers do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        deadline = time.monotonic() + 60
        while list_processes_mapping_files([self.segment]):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(params=["loaded", "loading"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    started = Engine(request.param)
    yield started
    if started.is_there[0]:
        started.kill_all()
        free_abandoned_memory()


def test_a_killed_engine_leaves_memory_that_the_next_start_frees(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    free_abandoned_memory()
    assert engine.is_there == (True, True)  # the engine is still running
    engine.process.kill()
    engine.process.wait()
    free_abandoned_memory()
    assert engine.is_there == (True, True)  # its child is still running
    assert f"End them by: kill {engine.child}" in caplog.text and "occupy 1 MiB" in caplog.text
    engine.kill_all()
    assert engine.is_there == (True, True)
    free_abandoned_memory()
    assert engine.is_there == (False, False)


def test_a_record_names_shared_memory_alone(tmp_path: Path) -> None:
    """Whatever the record holds, only shared memory is removed."""
    kept = tmp_path / "kept"
    memory = tmp_path / "shm"
    memory.mkdir()
    kept.write_text("kept")
    (memory / "other").write_text("kept")
    (memory / "mclabel_link").symlink_to(tmp_path)
    record = memory / "mclabel_dead"
    record.mkdir()
    (record / "lock").touch()
    (record / "segments").write_text(f"../kept\n{kept}\nother\npsm_gone\n\n")
    free_abandoned_memory(memory)
    assert not record.exists() and kept.exists() and (memory / "other").exists()


def test_an_engine_that_ends_leaves_no_record(tmp_path: Path) -> None:
    memory = SharedMemoryRecord(tmp_path)
    with memory.record_segments_during():
        free_abandoned_memory(tmp_path)
        assert memory.folder is not None and memory.folder.parent == tmp_path
    memory.close()
    memory.close()
    assert not list(tmp_path.iterdir())
    assert SharedMemoryRecord(tmp_path / "none").folder is None


# A worker ends with the process that started its engine, and ends the engine's process too.

WORKER = """
import time
from mclabel.engines.vllm_memory import OwnerWatchingWorker
class Worker:
    def __init__(self, name):
        self.name = name
class Watching(Worker, OwnerWatchingWorker):
    pass
print(Watching(name="one").name, flush=True)
time.sleep(600)
"""
OWNED = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {WORKER!r}])
"""


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def start_engine(owner: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNED],
        env={**os.environ, OWNER: str(owner)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_an_engine_and_its_worker_live_as_long_as_their_owner(
    owner: subprocess.Popen[bytes],
) -> None:
    engine = start_engine(owner.pid)
    assert engine.stdout is not None and engine.stdout.readline() == "one\n"
    assert engine.poll() is None
    owner.kill()
    owner.wait()
    assert engine.wait(timeout=60) == -signal.SIGKILL
    # the worker held the other end of the pipe, so it has ended, too
    assert engine.stdout.read() == ""


def test_an_owner_that_has_ended_already_ends_them_at_once(
    owner: subprocess.Popen[bytes],
) -> None:
    owner.kill()
    owner.wait()
    engine = start_engine(owner.pid)
    output, _ = engine.communicate(timeout=60)
    assert output == "" and engine.returncode == -signal.SIGKILL
