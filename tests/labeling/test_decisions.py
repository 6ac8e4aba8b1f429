"""DecisionBatcher with many problems on one event loop gives the results of separate problems."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack

import pytest

from mclabel.core.settings import find_settings_class
from mclabel.labeling import decisions
from mclabel.labeling.decisions import DecisionBatcher
from mclabel.labeling.estimators import (
    CheckedEstimator,
    Estimator,
    ProblemPaths,
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
                at_work.enter_context(shared.active_problem())
            return [
                list(w)
                for w in await asyncio.gather(*(shared.request_probes(e, MANY) for e in some))
            ]

    found = asyncio.run(run())
    assert sizes == [20, 20, 10]
    assert found == [list(e.wanted(MANY)) for e in estimators("posterior", 50)]


def test_nobody_waits_once_all_at_work_have_asked_or_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = count_batches(monkeypatch)
    monkeypatch.setattr(decisions, "WINDOW_S", 3600)

    async def run() -> None:
        shared, some = DecisionBatcher(CpuExecutor()), estimators("posterior", 3)
        with shared.active_problem():
            await shared.request_probes(some[0], MANY)
            with shared.active_problem():
                asked = [asyncio.create_task(shared.request_probes(one, MANY)) for one in some[1:2]]
                await asyncio.sleep(0.05)
                assert not asked[0].done(), "another problem may ask yet"
            await asyncio.gather(*asked)
            with shared.active_problem():
                await asyncio.gather(*(shared.request_probes(one, MANY) for one in some[1:]))

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

    assert [str(one) for one in asyncio.run(run())] == ["impossible"] * 3
