"""A trained PRM, and a real vLLM server of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from labelled import arith_rows, write_run

from mclabel import edge
from mclabel.config import TrainConfig, load_config

START_S = 300.0


def trained_prm(folder: Path, *changes: str) -> Path:
    """A PRM from the bundled base, trained for a moment on exact labels."""
    run = write_run(folder / "labels", arith_rows(60))
    settings = [f"labels=[{run}]", "base=arith:base", f"out={folder / 'prm'}", "max_steps=30"]
    config = load_config(TrainConfig, None, [*settings, *changes])
    edge.train(config, lambda step, total, detail: None)
    return folder / "prm"


@contextmanager
def served(prm: Path, log: Path, *, dtype: str) -> Iterator[str]:
    """The URL of a server of a PRM, which is gone afterwards."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mclabel", "serve", str(prm), "--port", str(port)]
    command += ["--host", "127.0.0.1", "--dtype", dtype, "--enforce-eager"]
    environment = {
        **os.environ,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # other jobs may hold core 0
        "OMP_NUM_THREADS": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, stdout=file, stderr=file, env=environment, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(server, url, log)
        yield url
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        except OSError:
            tail = log.read_text(errors="replace")[-3000:]
            assert server.poll() is None, f"the server ended: {tail}"
            assert time.monotonic() < end, f"the server never came: {tail}"
            time.sleep(0.5)
