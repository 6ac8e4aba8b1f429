"""Measure the CPU time of estimators' decisions beside the event loop of a labelling engine.

The scripted policy answers after a random time, so decisions fall due as they do with an engine
that batches continuously. Hundreds of problems are labelled concurrently. A decision chooses one
prefix, or no prefix for a whole problem. Its cost is the CPU time of the deciding thread, which
other work on the machine hardly affects. The lag is the delay with which a sleeping task of the
event loop wakes up. The last line is JSON.

    python -m tests.benchmarks.estimators_decisions [--smoke | --quick]
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from mclabel.checkers import make_checker
from mclabel.core.records import Problem
from mclabel.engines import PolicySettings
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelSettings
from mclabel.labeling.decisions import DecisionBatcher, LearnerState
from mclabel.labeling.estimators import Probe, ProblemEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.problem import EngineContext, label_problem, run_learner
from mclabel.labeling.sampling import SolutionSettings
from mclabel.run.cpu_executor import CpuExecutor
from tests.benchmarks.figures import finish
from tests.benchmarks.sizes import BenchmarkSize, SizedParser

TICK_S = 0.002


def main() -> None:
    size: BenchmarkSize = SizedParser(__doc__).read().size
    found = [
        asyncio.run(
            _run(size.pick(smoke=8, quick=2 * block, full=max(512, 2 * block)), block, steps)
        )
        for steps in size.pick(smoke=(4,), quick=(4, 8), full=(4, 8))
        for block in (16, 256)
    ]
    full = [one["us_per_decision"] for one in found if one["full"]]
    finish(
        {
            "us_per_decision": float(np.mean(full)),
            "decisions": {
                f"{one['steps']} steps, {one['problems_at_a_time']} at a time": one for one in found
            },
        }
    )


class TimedDecisions(DecisionBatcher):
    """A decision batcher that measures the CPU time of its decisions."""

    def __init__(self, executor: CpuExecutor) -> None:
        super().__init__(executor)
        self.seconds, self.num_decisions, self.num_turns = 0.0, 0, 0

    def decide_batch(self, asking: Sequence[tuple[ProblemEstimator, int]]) -> list[Sequence[Probe]]:
        began = time.thread_time()
        found = super().decide_batch(asking)
        self.seconds += time.thread_time() - began
        self.num_decisions += sum(max(1, len(set(wanted))) for wanted in found)
        self.num_turns += 1
        return found


async def _run(problems: int, block: int, num_steps: int) -> dict[str, Any]:
    settings = LabelSettings(
        solutions=SolutionSettings(per_problem=4),
        estimator=PosteriorEstimator.Settings(rollouts=16, min_gain=0.008),
    )
    engine = ScriptedEngine.Settings(num_steps=num_steps, delay_s=0.02)
    policy = ScriptedEngine(PolicySettings(max_tokens=10_000, engine=engine))
    await policy.start()
    executor, learner = CpuExecutor(), run_learner(settings)
    assert learner is not None
    timed = TimedDecisions(executor)
    shared = EngineContext(
        policy=policy,
        settings=settings,
        checker=make_checker(settings.checker),
        executor=executor,
        decisions=timed,
        first_state=LearnerState.from_learner(learner),
    )

    async def label(problem: Problem, priority: int) -> int:
        labels = await label_problem(problem, shared, priority=priority)
        return len(labels.rollouts)

    rows = [
        Problem(id=f"p{i}", text=f"Problem {i} [answer {i + 10}]", answer=str(i + 10))
        for i in range(problems)
    ]
    lags: list[float] = []
    ticker = asyncio.create_task(_tick(lags))
    began, began_cpu = time.perf_counter(), time.process_time()
    rollouts = 0
    for begin in range(0, problems, block):
        work = [label(problem, begin) for problem in rows[begin : begin + block]]
        rollouts += sum(await asyncio.gather(*work))
    seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - began_cpu
    ticker.cancel()
    executor.close()
    await policy.close()
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


if __name__ == "__main__":
    main()
