"""Throughput and latency of the reward server."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mclabel.core.config.load import bundled_config, load_config
from mclabel.domains.arith.problems import generate_problems
from mclabel.labeling.policy import prepare_policy
from mclabel.rl.client import RewardClient, RewardItem
from mclabel.rl.config import RLConfig
from mclabel.rl.training.rollouts import LiveEngine
from tests.benchmarks.sizes import BenchmarkSize

GROUP = 8
NUM_CLIENTS = 16


def server_speed(prm: Path, size: BenchmarkSize) -> dict[str, float]:
    """Return completions per second through the server, and the p50 and p99 of request seconds.

    `NUM_CLIENTS` clients send requests concurrently, with a group of 8 completions in each request.
    """
    groups = _groups(size.pick(smoke=2, quick=64, full=256))
    with _served(prm) as url:
        client = RewardClient(url, timeout_s=600)
        client.score(groups[0])  # warms up the server

        def timed(group: Sequence[RewardItem]) -> float:
            began = time.perf_counter()
            client.score(group)
            return time.perf_counter() - began

        began = time.perf_counter()
        with ThreadPoolExecutor(NUM_CLIENTS) as pool:
            waits = list(pool.map(timed, groups))
        seconds = time.perf_counter() - began
    p50, p99 = np.quantile(waits, [0.5, 0.99]).tolist()
    found = {"score_per_s": len(groups) * GROUP / seconds, "p50_s": p50, "p99_s": p99}
    return {name: round(value, 4) for name, value in found.items()}


def _groups(count: int) -> list[list[RewardItem]]:
    """Sample groups of completions from the bundled policy."""
    config = load_config(RLConfig, bundled_config("rl/arith.yaml"), ["out=unused"])
    problems = generate_problems(count, seed=79, split="test")
    with LiveEngine(prepare_policy(config.policy).engine_factory(0)(), config) as live:
        found = live.groups(problems, seed=1, size=GROUP)
    return [
        [RewardItem(one.problem.text, s.text, one.problem.answer) for s in one.solutions]
        for one in found
    ]


@contextmanager
def _served(prm: Path) -> Iterator[str]:
    """Run `mclabel serve-rewards` in a new process, and return the server's address."""
    keys = [str(bundled_config("rl/serve-rewards.yaml")), f"prm={prm}", "credit=prm_min"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mclabel", "serve-rewards", *keys, "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            said = next((line for line in server.stdout if "http" in line), "")
            found = re.search(r"http://\S+", said)
            assert found is not None, f"The server printed no address: {said!r}"
            yield found[0]
        finally:
            server.terminate()
