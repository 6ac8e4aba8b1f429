"""Decisions of many problems on one loop: together, as alone, and never lost."""

from __future__ import annotations

import asyncio

import pytest

from mclabel.estimators import Estimator, EstimatorSettings, has_to_think, make_estimator
from mclabel.labeling import decisions
from mclabel.labeling.decisions import Decisions
from mclabel.simulate.profiles import simulated_cases
from mclabel.work.desk import Desk


def estimators(kind: str, count: int) -> list[Estimator]:
    chosen = EstimatorSettings(kind=kind, rollouts=8)  # type: ignore[arg-type]
    return [make_estimator(chosen, case.paths) for case in simulated_cases("sharp", count)]


def count_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    sizes: list[int] = []
    real = decisions.decide

    def counting(some: list[Estimator]) -> None:
        sizes.append(len(some))
        real(some)

    monkeypatch.setattr(decisions, "decide", counting)
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


def test_only_who_has_to_think_is_worth_waiting_for() -> None:
    assert not any(map(has_to_think, estimators("bisect", 3)))
    thinking = estimators("posterior", 1)[0]
    assert has_to_think(thinking)
    assert thinking.wanted() and not has_to_think(thinking)  # rollouts are due


def test_who_gives_up_waiting_does_no_harm() -> None:
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

    monkeypatch.setattr(decisions, "decide", fail)

    async def run() -> list[object]:
        shared = Decisions(Desk())
        some = estimators("posterior", 3)
        return await asyncio.gather(*(shared.wanted(e) for e in some), return_exceptions=True)

    assert [str(one) for one in asyncio.run(run())] == ["impossible"] * 3
