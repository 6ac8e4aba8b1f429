"""A worker ends with the process that started its engine, and takes the engine's with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mclabel.engines.vllm_memory import OWNER

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")

WORKER = """
import time
from mclabel.engines.vllm_memory import EndsWithOwner
class Worker:
    def __init__(self, name):
        self.name = name
class Watching(Worker, EndsWithOwner):
    pass
print(Watching(name="one").name, flush=True)
time.sleep(600)
"""
ENGINE = f"""
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
        [sys.executable, "-c", ENGINE],
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
    assert engine.stdout.read() == ""  # the worker, which held its other end, has ended, too


def test_an_owner_that_has_ended_already_ends_them_at_once(
    owner: subprocess.Popen[bytes],
) -> None:
    owner.kill()
    owner.wait()
    engine = start_engine(owner.pid)
    output, _ = engine.communicate(timeout=60)
    assert output == "" and engine.returncode == -signal.SIGKILL
