"""What a worker was leased: what has ended is told once, and a failure after it."""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from pathlib import Path

import pytest
from scripted_jobs import scripted

from mclabel.data.shards.labels import committed_blocks
from mclabel.data.shards.store import Store
from mclabel.engines.scripted import ScriptedEngine
from mclabel.errors import DataError, EngineDied
from mclabel.estimators.fixed import FixedEstimator
from mclabel.labeling.sampling import SolutionSettings
from mclabel.labeling.settings import LabelSettings
from mclabel.records import Problem
from mclabel.work.actor import LabelActor, NotLoaded
from mclabel.work.leased import LeasedWork
from mclabel.work.suspects import Lease
from mclabel.work.worker import Block, LabelWorker


def worker(folder: Path, *, delay_s: float = 0.0, strict: bool = False) -> LabelWorker:
    Store(str(folder), create=True)
    return LabelWorker(
        make_policy=partial(ScriptedEngine, scripted(delay_s=delay_s, poison=True)),
        out=str(folder),
        settings=LabelSettings(
            solutions=SolutionSettings(per_problem=1),
            estimator=FixedEstimator.Settings(rollouts=1),
            strict=strict,
        ),
        provenance={},
        keep_rollouts=True,
    )


def lease(name: str, text: str = "", gold: str = "1", only: str | None = None) -> Lease:
    problem = Problem(id=f"p-{name}", text=f"{text} [answer 1]", answer=gold)
    block = Block(id=name, problems=(problem,), given={}, priority=0)
    return Lease(block=block, replay=False, only=only)


def test_blocks_that_end_in_the_same_moment_are_told_together_and_once(tmp_path: Path) -> None:
    async def run() -> None:
        one = worker(tmp_path)
        await one.start()
        work = LeasedWork(one)
        work.begin([lease(f"b{i}") for i in range(5)])
        ended = await work.ended(60)
        while len(ended) < 5:  # on a machine that has other work to do
            ended += await work.ended(60)
        assert [block_id for block_id, _ in ended] == [f"b{i}" for i in range(5)]
        assert all(report is not None and report.committed for _, report in ended)
        assert work.unfinished == [] and await work.ended(0.01) == []
        work.begin([lease("b5", only="p-b5")])
        assert await work.ended(60) == [("b5", None)]  # tried, not committed

    asyncio.run(run())
    assert committed_blocks(Store(str(tmp_path))) == {f"b{i}" for i in range(5)}


def test_what_failed_stays_unfinished_and_the_worse_failure_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        one = worker(tmp_path, strict=True)
        await one.start()
        work = LeasedWork(one)
        work.begin([lease("kills", "[poison]")])
        while work.failure is None:
            assert await work.ended(1) == []
        assert isinstance(work.failure, EngineDied)
        work.begin([lease("bad", gold="")])
        while not isinstance(work.failure, DataError):
            await work.ended(1)
        assert work.unfinished == ["kills", "bad"]

    asyncio.run(run())


def test_what_is_given_up_leaves_its_journal_and_is_no_failure(tmp_path: Path) -> None:
    async def run() -> None:
        one = worker(tmp_path, delay_s=0.2)
        await one.start()
        work = LeasedWork(one)
        work.begin([lease("b0")])
        while (await one.progress()).num_completions == 0:
            assert await work.ended(0.01) == []
        await work.give_up()
        assert work.failure is None and work.unfinished == ["b0"]

    asyncio.run(run())
    assert list((tmp_path / "journals" / "b0").iterdir())


def test_an_actor_hears_no_exchange_of_an_earlier_load(tmp_path: Path) -> None:
    """Its answer would go to nobody, and the block would be waited for without end."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        actor = LabelActor(partial(worker, tmp_path))
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(NotLoaded):
        actor.exchange(1, [])
    actor.load(1)
    assert not actor.exchange(1, []).failed
    actor.load(2)
    with pytest.raises(NotLoaded):
        actor.exchange(1, [lease("b0")])
    ended = [*actor.exchange(2, [lease("b1")]).ended]
    while not ended:
        ended += actor.exchange(2, []).ended
    assert [block_id for block_id, _ in ended] == ["b1"]
    actor.end()
    assert committed_blocks(Store(str(tmp_path))) == {"b1"}
