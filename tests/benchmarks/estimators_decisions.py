"""What decisions cost where they are made: in a worker of a labelling job, beside its event loop.

The scripted policy answers after a random time, so that decisions fall due as they would with an
engine that batches continuously; the labelling of hundreds of problems runs side by side. A
decision is one prefix chosen, or none for a whole problem. Its cost is the CPU time of the thread
that decides, which other work on the machine does not lengthen much. Lag is how much later than
asked a sleeping task of the event loop wakes up.

    python -m tests.benchmarks.estimators_decisions [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import Console

from mclabel.data.shards.store import Store
from mclabel.engines import SamplingParams
from mclabel.engines.scripted import ScriptedPolicy
from mclabel.estimators import Estimator
from mclabel.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling import runner
from mclabel.labeling.decisions import Decisions
from mclabel.labeling.items import ProblemItem
from mclabel.labeling.sampling import SolutionSettings
from mclabel.labeling.settings import LabelSettings
from mclabel.labeling.task import LabelTask
from mclabel.records import Problem
from mclabel.work.desk import Desk
from mclabel.work.task import Block
from mclabel.work.worker import Worker

TICK_S = 0.002


class TimedDecisions(Decisions):
    """Keeps time."""

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk)
        self.seconds, self.num_decisions, self.num_turns = 0.0, 0, 0

    def together(self, estimators: Sequence[Estimator]) -> list[Sequence[int]]:
        began = time.thread_time()
        found = super().together(estimators)
        self.seconds += time.thread_time() - began
        self.num_decisions += sum(max(1, len(set(wanted))) for wanted in found)
        self.num_turns += 1
        return found


async def _run(problems: int, block: int, num_steps: int, delay_s: float) -> dict[str, Any]:
    settings = LabelSettings(
        solutions=SolutionSettings(per_problem=4),
        estimator=PosteriorEstimator.Settings(rollouts=16, min_gain_per_token=1e-4),
    )
    sampling = SamplingParams(max_tokens=10_000)
    make = partial(ScriptedPolicy, sampling=sampling, num_steps=num_steps, delay_s=delay_s)
    with tempfile.TemporaryDirectory() as scratch:
        Store(scratch, create=True)
        task = LabelTask(make_policy=make, settings=settings, provenance={}, keep_rollouts=False)
        worker = Worker(task, out=scratch)
        timed = TimedDecisions(Desk())
        vars(runner)["Decisions"] = lambda desk: timed
        await worker.start()
        rows = [
            Problem(id=f"p{i}", text=f"Problem {i} [answer {i + 10}]", answer=str(i + 10))
            for i in range(problems)
        ]
        blocks = [
            Block(id=f"b{i}", items=tuple(map(ProblemItem, rows[i : i + block])), priority=i)
            for i in range(0, problems, block)
        ]
        lags: list[float] = []
        ticker = asyncio.create_task(_tick(lags))
        began, began_cpu = time.perf_counter(), time.process_time()
        reports = [await worker.run_block(one) for one in blocks]
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
        ticker.cancel()
    rollouts = sum(report.counts["num_rollouts"] for report in reports)
    return {
        "problems_at_a_time": block,
        "steps": num_steps + 1,
        "full": block >= 256,
        "us_per_decision": 1e6 * timed.seconds / timed.num_decisions,
        "decisions_a_turn": timed.num_decisions / timed.num_turns,
        "decisions_per_s": timed.num_decisions / seconds,
        "rollouts_per_s": rollouts / seconds,
        "share_of_cpu_time": timed.seconds / cpu_seconds,
        "lag_ms_median": 1e3 * float(np.median(lags)),
        "lag_ms_99": 1e3 * float(np.quantile(lags, 0.99)),
    }


async def _tick(lags: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        lags.append(time.perf_counter() - began - TICK_S)


def decision_cost(quick: bool, console: Console) -> list[dict[str, Any]]:
    """Decisions in a worker, for solutions of 5 and 9 steps."""
    found = []
    for num_steps in (4, 8):
        for block in (16, 256):
            problems = 2 * block if quick else max(512, 2 * block)
            one = asyncio.run(_run(problems, block, num_steps, delay_s=0.02))
            shown = ", ".join(
                f"{k} {v:,.3g}" if v < 1000 else f"{k} {v:,.0f}" for k, v in one.items()
            )
            console.print(f"decisions in a worker: {shown}")
            found.append(one)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer problems")
    decision_cost(parser.parse_args().quick, Console())
