"""Measure the overhead of the lease book and of blocks through actors on the scripted policy.

    python -m tests.benchmarks.scale [--smoke | --quick]

First the lease book serves 1,000 simulated clients. It has 1,000,000 problems, which are cut into
blocks as in a job. The figures are leases per second of CPU time, without the time that makes the
problems, and the growth of memory after the first tenth. Then a whole job runs on a real Ray of
this machine with 8 actors and the smallest possible blocks (one problem, one solution, one rollout
of every prefix), so nearly all of its time is overhead. The figure is blocks per second from the
first report to the last. It is measured for a number of problems and for ten times as many. The
last line is JSON.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil

from mclabel.core.records import Problem
from mclabel.engines import Policy, PolicySettings
from mclabel.engines.devices import EngineResources
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.inputs import ProblemItems
from mclabel.labeling.task import LABEL_OUTPUTS, LabelTask
from mclabel.run.blocks import plan_blocks
from mclabel.run.fleets import RayFleet
from mclabel.run.job import freeze_heap, run_job
from mclabel.run.leases import LeaseBook, OnProgress
from mclabel.run.settings import RayConfig
from mclabel.run.shards.store import Store
from mclabel.run.task import RunnerState
from mclabel.run.worker import BlockReport, Worker
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

NUM_CLIENTS = 1000
NUM_PROBLEMS, BLOCK_PROBLEMS = 1_000_000, 8
STORY, META = "A farmer has some apples and sells a few of them. " * 4, {"level": "3"}
LOST = 0.01  # share of leases whose worker dies


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    num_blocks, num_actors = size.pick(smoke=(2, 1), quick=(400, 8), full=(1500, 8))
    num_problems = size.pick(smoke=NUM_CLIENTS, quick=NUM_PROBLEMS, full=NUM_PROBLEMS)
    counts = [num_blocks, 10 * num_blocks]
    with freeze_heap():  # a job freezes its heap, too
        leases_per_s, growth_mb = _measure_lease_book(num_problems)
    rates, times = _jobs(counts, num_actors)
    result = {
        "leases_per_s": round(leases_per_s),
        "blocks_per_s_8_actors": round(max(rates), 1),
        "rss_growth_mb": round(growth_mb, 1),
        "time_ratio_10x": round(times[1] / times[0], 2),
        "blocks": counts,
        "blocks_per_s": [round(rate, 1) for rate in rates],
    }
    finish(result)


class _Problems:
    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Problem]:
        for i in range(self._count):
            yield Problem(id=f"p{i}", text=f"P{i} [answer {i}] {STORY}", answer=str(i), meta=META)


def _measure_lease_book(num_problems: int) -> tuple[float, float]:
    """Return the leases per second, and the growth of memory in MB after the first tenth."""
    rng = random.Random(0)
    problems = _Problems(num_problems)
    identity = LabelConfig(out="x").identity()
    items = ProblemItems(problems)
    planned = plan_blocks(None, items, LABEL_OUTPUTS, identity=identity, block_items=BLOCK_PROBLEMS)
    num_blocks = len(planned)
    book = LeaseBook(planned.read_blocks(), num_blocks=num_blocks)
    busy = RunnerState(num_live=256, max_live=256, num_waiting=256)
    held: list[list[str]] = [[] for _ in range(NUM_CLIENTS)]
    count, before = 0, 0
    started = time.process_time()
    while not book.finished:
        client = rng.randrange(NUM_CLIENTS)
        for block_id in held[client]:
            if rng.random() < LOST:
                book.release(client, block_id, "simulated", may_be_cause=False)
            else:
                book.mark_done(client, block_id)
        leases = book.lease_blocks(client, busy, num_workers=NUM_CLIENTS)
        held[client] = [lease.block.id for lease in leases]
        count += len(leases)
        if not before and count > num_blocks / 10:
            before = psutil.Process().memory_info().rss
    seconds = time.process_time() - started
    started = time.process_time()
    for _ in problems:
        pass
    seconds -= time.process_time() - started
    return count / seconds, (psutil.Process().memory_info().rss - before) / 1e6


def _jobs(counts: list[int], num_actors: int) -> tuple[list[float], list[float]]:
    """Return the blocks per second and the seconds of a job for each count, with loaded engines."""
    import ray

    rates, times = [], []
    # The folder is deleted at the end, since file systems create files slowly after many deletions.
    with tempfile.TemporaryDirectory(prefix="mclabel-scale-") as folder:
        for count in counts:
            seconds = _job(count, num_actors, Path(folder, str(count)))
            rates.append((count - 1) / seconds)
            times.append(seconds)
    ray.shutdown()
    return rates, times


def _job(count: int, num_actors: int, folder: Path) -> float:
    folder.mkdir()
    config = LabelConfig.model_validate(
        {
            "out": str(folder),
            "solutions": {"per_problem": 1},
            "estimator": {"kind": "fixed", "rollouts": 1},
        }
    )
    task = LabelTask(make_policy=_make_policy, settings=config, provenance={})
    make_worker = partial(Worker, task, out=str(folder))
    fleet = _TimedFleet(
        make_worker,
        RayConfig(min_engines=num_actors, max_engines=num_actors),
        resources=EngineResources(num_cpus=1 / num_actors, num_gpus=0),
    )
    problems = list(_Problems(count))
    items, identity = ProblemItems(problems), config.identity()
    store = Store(str(folder))
    blocks = plan_blocks(store, items, LABEL_OUTPUTS, identity=identity, block_items=1)
    report = run_job(blocks, LABEL_OUTPUTS, fleet, store)
    assert report.num_items == count
    return fleet.seconds


def _make_policy() -> Policy:
    return ScriptedEngine(
        PolicySettings(max_tokens=1000, engine=ScriptedEngine.Settings(num_steps=2))
    )


class _TimedFleet(RayFleet):
    """A fleet that measures the time from the first report to the last."""

    seconds = 0.0

    def run(self, book: LeaseBook, on_progress: OnProgress) -> Iterator[BlockReport]:
        started = None
        for report in super().run(book, on_progress):
            started = started or time.perf_counter()
            self.seconds = time.perf_counter() - started
            yield report


if __name__ == "__main__":
    main()
