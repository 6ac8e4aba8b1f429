"""Decisions of many problems on one loop: together, as alone, and never lost."""

from __future__ import annotations

import asyncio

import pytest

from mclabel.estimators import Estimator, ProblemPaths
from mclabel.labeling import decisions
from mclabel.labeling.decisions import Decisions
from mclabel.settings import settings_class
from mclabel.simulate.profiles import simulated_cases
from mclabel.work.desk import Desk


def estimators(kind: str, count: int) -> list[Estimator]:
    settings = settings_class("estimators", kind)(rollouts=8)
    begin = settings.component.begin
    return [
        begin(settings, ProblemPaths(paths=case.paths)) for case in simulated_cases("sharp", count)
    ]


def count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    real = decisions.decide_together

    def counting(some: list[Estimator]) -> None:
        sizes.append(len(some))
        real(some)

    monkeypatch.setattr(decisions, "decide_together", counting)
    return sizes


def test_what_is_due_together_is_decided_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = count_batches(monkeypatch)
    monkeypatch.setattr(decisions, "MAX_TOGETHER", 20)

    async def run() -> list[list[int]]:
        shared = Decisions(Desk())
        some = estimators("posterior", 50)
        return [list(w) for w in await asyncio.gather(*(shared.wanted(e) for e in some))]

    found = asyncio.run(run())
    assert sizes == [20, 20, 10]
    assert found == [list(e.wanted()) for e in estimators("posterior", 50)]


def test_an_estimator_whose_decision_takes_no_time_is_never_due() -> None:
    assert not any(one.is_due for one in estimators("bisect", 3))
    bayesian = estimators("posterior", 1)[0]
    assert bayesian.is_due
    assert bayesian.wanted() and not bayesian.is_due  # rollouts are due


def test_a_request_that_is_cancelled_does_no_harm() -> None:
    async def run() -> int:
        shared = Decisions(Desk())
        first, second = estimators("posterior", 2)
        gone = asyncio.create_task(shared.wanted(first))
        stays = asyncio.create_task(shared.wanted(second))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        return len(await stays)

    assert asyncio.run(run()) == len(estimators("posterior", 2)[1].wanted())


def test_a_failure_reaches_everyone_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(some: list[Estimator]) -> None:
        raise FloatingPointError("impossible")

    monkeypatch.setattr(decisions, "decide_together", fail)

    async def run() -> list[object]:
        shared = Decisions(Desk())
        some = estimators("posterior", 3)
        return await asyncio.gather(*(shared.wanted(e) for e in some), return_exceptions=True)

    assert [str(one) for one in asyncio.run(run())] == ["impossible"] * 3
