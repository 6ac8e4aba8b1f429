"""Many problems on one event loop: the same decisions as alone, learned from fixed problems."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from mclabel.core.records import Outcome
from mclabel.core.settings import find_settings_class
from mclabel.labeling import decisions
from mclabel.labeling.decisions import DecisionBatcher, LearningQueue
from mclabel.labeling.estimators import (
    CheckedEstimator,
    Estimator,
    ProblemPaths,
    SolutionPath,
    begin_estimator,
)
from mclabel.run.cpu_executor import CpuExecutor
from tests.benchmarks.simulation.profiles import simulated_cases

MANY = 1_000
"""A number of prefixes that exceeds the prefixes of every problem here."""


def estimators(kind: str, count: int) -> list[CheckedEstimator]:
    settings = find_settings_class("estimators", kind)(rollouts=8)
    return [
        begin_estimator(settings, ProblemPaths(paths=case.paths))
        for case in simulated_cases("sharp", count)
    ]


def count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    real = decisions.decide_together

    def counting(some: Iterable[Estimator]) -> None:
        due = list(some)
        sizes.append(len(due))
        real(due)

    monkeypatch.setattr(decisions, "decide_together", counting)
    return sizes


def test_what_is_due_together_is_decided_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = count_batches(monkeypatch)
    monkeypatch.setattr(decisions, "MAX_BATCH_DECISIONS", 20)

    async def run() -> list[list[int]]:
        shared = DecisionBatcher(CpuExecutor())
        some = estimators("posterior", 50)
        with ExitStack() as at_work:
            for _ in some:
                at_work.enter_context(shared.register_active_problem())
            return [
                list(w)
                for w in await asyncio.gather(*(shared.request_probes(e, MANY) for e in some))
            ]

    decided = asyncio.run(run())
    assert sizes == [20, 20, 10]
    assert decided == [list(e.wanted(MANY)) for e in estimators("posterior", 50)]


def test_nobody_waits_once_all_at_work_have_asked_or_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = count_batches(monkeypatch)
    monkeypatch.setattr(decisions, "WINDOW_S", 3600)

    async def run() -> None:
        shared, some = DecisionBatcher(CpuExecutor()), estimators("posterior", 3)
        with shared.register_active_problem():
            await shared.request_probes(some[0], MANY)
            with shared.register_active_problem():
                requests = [
                    asyncio.create_task(shared.request_probes(estimator, MANY))
                    for estimator in some[1:2]
                ]
                await asyncio.sleep(0.05)
                assert not requests[0].done(), "another problem may ask yet"
            await asyncio.gather(*requests)
            with shared.register_active_problem():
                await asyncio.gather(
                    *(shared.request_probes(estimator, MANY) for estimator in some[1:])
                )

    asyncio.run(asyncio.wait_for(run(), 60))
    assert sizes == [1, 1, 2]


def test_a_request_that_is_cancelled_does_no_harm() -> None:
    async def run() -> int:
        shared = DecisionBatcher(CpuExecutor())
        first, second = estimators("posterior", 2)
        gone = asyncio.create_task(shared.request_probes(first, MANY))
        stays = asyncio.create_task(shared.request_probes(second, MANY))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return len(await stays)

    assert asyncio.run(run()) == len(estimators("posterior", 2)[1].wanted(MANY))


def test_a_failure_reaches_everyone_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(some: list[Estimator]) -> None:
        raise FloatingPointError("impossible")

    monkeypatch.setattr(decisions, "decide_together", fail)

    async def run() -> list[object]:
        shared = DecisionBatcher(CpuExecutor())
        some = estimators("posterior", 3)
        return await asyncio.gather(
            *(shared.request_probes(e, MANY) for e in some), return_exceptions=True
        )

    assert [str(error) for error in asyncio.run(run())] == ["impossible"] * 3


PATH = SolutionPath(prefixes=(), outcome=Outcome.RIGHT)
NUM_PROBLEMS, LAG = 40, 8


class RecordingLearner:
    """A learner that records how many problems its latest fit used; a fit is due every five."""

    min_gain = None

    def lag(self, number: int) -> int:
        return LAG

    def __init__(self) -> None:
        self.taught: list[int] = []
        self.knowledge = 0

    @property
    def is_due(self) -> bool:
        return len(self.taught) >= self.knowledge + 5

    def fit(self) -> None:
        self.knowledge = len(self.taught)


def problem_of(number: int, learner: RecordingLearner) -> Any:
    def record_evidence(_: object, __: object, *, num_tokens: int) -> None:
        learner.taught.append(number)

    return SimpleNamespace(record_evidence=record_evidence)


async def run(
    learner: RecordingLearner, delays: Sequence[float], failing: frozenset[int]
) -> tuple[dict[int, int], int]:
    """Run problems concurrently. Return the evidence of each, and the most that ran at once."""
    learning_queue = LearningQueue(learner, CpuExecutor(), fit=learner.fit)  # type: ignore[arg-type]
    knowledge: dict[int, int] = {}
    under_way, most = set[int](), 0

    async def run_problem(number: int) -> None:
        nonlocal most
        ticket = learning_queue.open_ticket()
        try:
            await asyncio.sleep(delays[number])
            if number in failing:
                return
            knowledge[number] = (await ticket.wait_for_state()).knowledge  # type: ignore[assignment]
            under_way.add(number)
            most = max(most, len(under_way))
            await asyncio.sleep(delays[-1 - number])
            under_way.remove(number)
            paths = ProblemPaths(paths=[PATH] * 4)
            await ticket.submit_results(problem_of(number, learner), paths, num_tokens=1)
        finally:
            await ticket.close()

    await asyncio.wait_for(asyncio.gather(*map(run_problem, range(len(delays)))), 60)
    return knowledge, most


def delays_of(seed: int) -> list[float]:
    rng = random.Random(seed)
    return [rng.choice((0.0, 0.002, 0.01)) for _ in range(NUM_PROBLEMS)]


@pytest.mark.parametrize("num_failing", [0, 30])
@pytest.mark.parametrize("seed", range(6))
def test_each_knows_what_was_learned_a_lag_before(seed: int, num_failing: int) -> None:
    failing = set(random.Random(seed).sample(range(NUM_PROBLEMS), num_failing))
    learner = RecordingLearner()
    knowledge, most = asyncio.run(run(learner, delays_of(seed), frozenset(failing)))
    rest = [number for number in range(NUM_PROBLEMS) if number not in failing]
    assert learner.taught == rest
    assert knowledge == {n: sum(number <= n - LAG for number in rest) // 5 * 5 for n in rest}
    assert (most > 1 or failing) and most <= LAG


def test_a_problem_that_is_cancelled_while_it_teaches_holds_up_nobody() -> None:
    async def cancelled() -> int:
        learner = RecordingLearner()
        learning_queue = LearningQueue(learner, CpuExecutor(), fit=learner.fit)  # type: ignore[arg-type]
        first, *others = [learning_queue.open_ticket() for _ in range(LAG + 1)]
        paths = ProblemPaths(paths=[PATH])
        begun = threading.Event()

        def slow(*_: object, num_tokens: int) -> None:
            begun.set()
            time.sleep(0.1)

        slowly: Any = SimpleNamespace(record_evidence=slow)
        task = asyncio.create_task(first.submit_results(slowly, paths, num_tokens=1))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await asyncio.wait_for(others[-1].wait_for_state(), 60)).knowledge  # type: ignore[return-value]

    assert asyncio.run(cancelled()) == 0
