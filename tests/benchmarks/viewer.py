"""How fast the viewer answers over a large run, and how much memory it takes.

    python -m tests.benchmarks.viewer [--smoke | --quick]

Makes a run of 100,000 solutions (`--quick`: 10,000) out of a small real one, starts `mclabel view`
on it as a process of its own, waits for its index, and asks for everything the pages ask for, each
time for something else, over HTTP. The last line is JSON: p50_ms and p99_ms by action, cpu_ms, the
server's mean CPU time for one, which other work on the machine hardly changes, and rss_mb, its
largest resident memory; the checker's worker processes are counted apart.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from tests.benchmarks.figures import finish
from tests.benchmarks.runs import label
from tests.benchmarks.sizes import BenchmarkSize, SizedParser
from tests.support.large_run import replicate
from tests.support.viewer_process import ViewerProcess

SEED = 7
NUM_PROBLEMS = 32
"""Of the real run whose rows are repeated."""
WORDS = ("kites", "how many", "answer is", "apples", "boxed{12}", "* 8", "omar", "zeppelin", "97")


def main() -> None:
    args = SizedParser(__doc__).read()
    size, repeats = args.size.pick(smoke=(100, 1), quick=(10_000, 40), full=(100_000, 200))
    few = 1 if args.size is BenchmarkSize.SMOKE else NUM_PROBLEMS
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "small"
        label(source, f"problems.limit={few}")
        run = Path(scratch) / "large"
        print(f"{replicate(source, run, size):,} solutions", flush=True)
        with ViewerProcess(str(run)) as server, _Memory(server) as memory:
            figures = _measure(server, size, repeats)
            figures["rss_mb"] = round(memory.server / 2**20)
            figures["workers_mb"] = round(memory.workers / 2**20)
    finish(figures)


def _measure(server: ViewerProcess, size: int, repeats: int) -> dict[str, Any]:
    rng = random.Random(SEED)
    started = time.monotonic()
    while True:
        state = server.get("state")
        if state["counts"]["total"] >= size and not state["pending"]:
            break
        time.sleep(0.2)
    index_s = time.monotonic() - started
    print(f"index ready {index_s:.1f} s after the first answer", flush=True)
    ids = [
        row["solution_id"]
        for _ in range(20)
        for row in server.get("solutions", offset=rng.randrange(size), limit=50)["rows"]
    ]
    types = list(state["counts"]["by"]["answer_type"])

    def some() -> dict[str, Any]:
        return {"id": rng.choice(ids)}

    def number() -> int:
        return rng.randint(2, 10**6)

    actions: dict[str, Callable[[], Any]] = {
        "state": lambda: server.get("state"),
        "list": lambda: server.get("solutions", width=number() / 1e8),
        "list_deep": lambda: server.get("solutions", offset=rng.randrange(size)),
        "filter_error": lambda: server.get("solutions", error=rng.choice(["any", "none", "0", "2"]),
                                           width=number() / 1e7),
        "filter_lucky": lambda: server.get("solutions", mark="lucky", width=number() / 1e7),
        "filter_truth": lambda: server.get("solutions", mark="truth", width=number() / 1e7),
        "filter_unknown": lambda: server.get("solutions", mark="unknown", width=number() / 1e7),
        "filter_type": lambda: server.get("solutions", answer_type=rng.choice(types),
                                          width=number() / 1e7),
        "sort_width": lambda: server.get("solutions", sort="width", width=number() / 1e7),
        "sort_fall": lambda: server.get("solutions", sort="fall", width=number() / 1e7),
        "search_common": lambda: server.get("solutions", q=f"{rng.choice(WORDS)} {number() % 90}"),
        "search_rare": lambda: server.get("solutions", q=f"variant {number()}"),
        "search_phrase": lambda: server.get("solutions", q=f'"(variant {number() % 99})" answer'),
        "place": lambda: server.get("place", **some()),
        "summary": lambda: server.get("summary", width=number() / 1e8),
        "summary_search": lambda: server.get("summary", q=f"{rng.choice(WORDS)} {number() % 90}"),
        "export": lambda: server.get("export", offset=rng.randrange(size), width=number() / 1e8),
        "open": lambda: server.get("solution", **some()),
        "rollouts": lambda: server.get("rollouts", step=0, **some()),
        "grades": lambda: server.get("grades", step=0, **some()),
        "text": lambda: server.get("text", what="step.0", offset=5, **some()),
        "page": lambda: server.ask("/static/viewer/main.js", cookie=server.cookie),
    }  # fmt: skip
    p50, p99, cpu = {}, {}, {}
    process = psutil.Process(server.process.pid)
    for name, act in actions.items():
        act()
        taken = []
        before = sum(process.cpu_times()[:2])
        for _ in range(repeats):
            began = time.perf_counter()
            act()
            taken.append((time.perf_counter() - began) * 1000)
        p50[name], p99[name] = (round(float(np.quantile(taken, q)), 1) for q in (0.5, 0.99))
        cpu[name] = round((sum(process.cpu_times()[:2]) - before) * 1000 / repeats, 1)
        times = f"p50 {p50[name]:7.1f}   p99 {p99[name]:7.1f}   cpu {cpu[name]:6.1f} ms"
        print(f"{name:16} {times}", flush=True)
    return {
        "solutions": size,
        "index_s": round(index_s, 1),
        "p50_ms": p50,
        "p99_ms": p99,
        "cpu_ms": cpu,
        "worst_p99_ms": max(p99.values()),
    }


class _Memory:
    """Largest resident memory of the server and, apart, of its worker processes, in bytes."""

    def __init__(self, server: ViewerProcess) -> None:
        self.server = self.workers = 0
        self._process = psutil.Process(server.process.pid)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.1):
            self.server = max(self.server, self._process.memory_info().rss)
            children = sum(child.memory_info().rss for child in self._process.children())
            self.workers = max(self.workers, children)


if __name__ == "__main__":
    main()
