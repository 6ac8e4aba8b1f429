"""Measure the speed of the reward server.

    python -m tests.benchmarks.reward_server [--smoke | --quick]

The server scores every step with the PRM of the quickstart and grades every answer. 16 clients send
requests concurrently, with a group of 8 completions of the bundled policy in each request. The last
line is JSON: completions per second, and the median and the 99th percentile of a request's seconds.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import numpy as np

from mclabel.core.config.load import find_bundled_config
from mclabel.rl.client import RewardClient, RewardItem
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.benchmarks.figures import finish
from tests.benchmarks.runs import label, quickstart_prm
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

GROUP = 8
NUM_CLIENTS = 16


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    with tempfile.TemporaryDirectory() as folder:
        prm = quickstart_prm(Path(folder), size, "problems.seed=91")
        groups = _sample_groups(Path(folder) / "samples", size.pick(smoke=2, quick=64, full=256))
        finish(_measure_speed(prm, groups))


def _measure_speed(prm: Path, groups: Sequence[Sequence[RewardItem]]) -> dict[str, float]:
    with _serve_prm(prm) as url:
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
    figures = {"score_per_s": len(groups) * GROUP / seconds, "p50_s": p50, "p99_s": p99}
    return {name: round(value, 4) for name, value in figures.items()}


def _sample_groups(out: Path, count: int) -> list[list[RewardItem]]:
    """Sample groups of completions from the bundled policy."""
    problems = ["problems.split=test", "problems.seed=79", f"problems.limit={count}"]
    label(out, *problems, "estimator=outcome", f"solutions.per_problem={GROUP}")
    rows = sorted(read_labels(Store(str(out))), key=lambda row: row.problem.id)
    return [
        [RewardItem(row.problem.text, row.solution.text, row.problem.answer) for row in group]
        for _, group in groupby(rows, key=lambda row: row.problem.id)
    ]


@contextmanager
def _serve_prm(prm: Path) -> Iterator[str]:
    """Run `mclabel serve-rewards` in a new process, and return the server's address."""
    keys = [str(find_bundled_config("rl/serve-rewards.yaml")), f"prm={prm}", "credit=prm_min"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-m", "mclabel", "serve-rewards", *keys, "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address_line = next((line for line in server.stdout if "http" in line), "")
            address = re.search(r"http://\S+", address_line)
            assert address is not None, f"The server printed no address: {address_line!r}"
            yield address[0]
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
