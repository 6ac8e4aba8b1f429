"""Shared memory of an engine that is killed is freed by the next, and of no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mclabel.core.stop import users_of
from mclabel.engines.vllm_memory import MEMORY, EngineMemory, free_left

pytestmark = pytest.mark.skipif(
    not (MEMORY.is_dir() and Path("/proc/self/maps").exists()), reason="needs /dev/shm and /proc"
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
from mclabel.engines.vllm_memory import EngineMemory
memory = EngineMemory()
with memory.noting():
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
    """A process with a child that shares memory, as vLLM's have it, and all else of its group."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ENGINE, *arguments],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        folder, name, child = self.process.stdout.readline().split()
        self.record, self.segment, self.child = Path(folder), MEMORY / name, int(child)

    @property
    def is_there(self) -> tuple[bool, bool]:
        """Whether the segment and the record are."""
        return self.segment.exists(), self.record.exists()

    def kill_all(self) -> None:
        """Also the child's resource tracker, as Ray and a container's end do."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        deadline = time.monotonic() + 60
        while users_of([self.segment]):
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture(params=["loaded", "loading"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    started = Engine(request.param)
    yield started
    if started.is_there[0]:
        started.kill_all()
        free_left()


def test_a_killed_engine_leaves_memory_that_the_next_start_frees(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    free_left()
    assert engine.is_there == (True, True)  # it lives
    engine.process.kill()
    engine.process.wait()
    free_left()
    assert engine.is_there == (True, True)  # a process of it lives
    assert f"End them: kill {engine.child}" in caplog.text and "hold 1 MiB" in caplog.text
    engine.kill_all()
    assert engine.is_there == (True, True)
    free_left()
    assert engine.is_there == (False, False)


def test_a_record_names_shared_memory_alone(tmp_path: Path) -> None:
    """Whatever it holds, nothing else is removed."""
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
    free_left(memory)
    assert not record.exists() and kept.exists() and (memory / "other").exists()


def test_an_engine_that_ends_leaves_no_record(tmp_path: Path) -> None:
    memory = EngineMemory(tmp_path)
    with memory.noting():
        free_left(tmp_path)
        assert memory.folder is not None and memory.folder.parent == tmp_path
    memory.close()
    memory.close()
    assert not list(tmp_path.iterdir())
    assert EngineMemory(tmp_path / "none").folder is None
