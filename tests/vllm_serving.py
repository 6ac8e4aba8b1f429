"""A real `vllm serve` of a model folder, on a port of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOAD_S = 240

CPU = {
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # other jobs may hold core 0
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
}


@contextmanager
def serve(folder: str, log: Path, *, key: str | None = None, name: str = "policy") -> Iterator[str]:
    """The base URL of a server that answers.

    Raises:
        RuntimeError: it ended or did not answer in time; with the end of its log.
    """
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [str(Path(sys.executable).parent / "vllm"), "serve", folder]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", name]
    command += ["--dtype", "float32", "--max-model-len", "512", "--enforce-eager"]
    environment = {**os.environ, **CPU}
    if key is not None:
        environment["VLLM_API_KEY"] = key
    with log.open("wb") as file:
        server = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, start_new_session=True
        )
    try:
        deadline = time.monotonic() + LOAD_S
        while not _answers(port):
            if server.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"vllm serve: {log.read_text()[-3000:]}")
            time.sleep(1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _answers(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
    except (urllib.error.URLError, OSError):
        return False
    return True
