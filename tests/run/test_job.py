"""Jobs: commit, resume and refusal, the frozen heap, the blocks of one worker, and problems that
kill engines.
"""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import signal
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import DataError, EngineDied
from mclabel.core.records import Problem
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig, LabelSettings
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.inputs import ProblemItem
from mclabel.labeling.job import make_semantic_config
from mclabel.labeling.sampling import SolutionSettings
from mclabel.labeling.task import LabelTask
from mclabel.run.actor import EngineNotLoaded, WorkerActor
from mclabel.run.job import freeze_heap
from mclabel.run.running import Lease, RunningBlocks
from mclabel.run.shards.labels import (
    commit_block,
    iter_label_tables,
    read_committed_block_ids,
    read_labels,
    read_rollouts,
)
from mclabel.run.shards.rejects import FILE, read_set_aside, write_rejects
from mclabel.run.shards.schema import LABELS_SCHEMA, SCHEMA_VERSION
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from mclabel.run.task import Block
from mclabel.run.worker import Worker
from tests.support.exactness import check_exact, check_solutions
from tests.support.scripted_jobs import (
    run_label_job,
    scripted,
    scripted_overrides,
    write_config,
    write_problems,
)


def run(out: Path) -> JobReport:
    return run_label_job(
        scripted_overrides(write_problems(out.parent, 20), out, "ray.address=none")
    )


def test_of_two_attempts_the_first_wins_whole(tmp_path: Path) -> None:
    run(tmp_path / "out")
    store = Store(str(tmp_path / "out"))
    rows, rollouts = list(read_labels(store)), list(read_rollouts(store))
    block = sorted(read_committed_block_ids(store))[0]
    before = store.read(f"labels/{block}.parquet")
    assert not commit_block(store, block, "late", rows, rollouts, {})
    assert store.read(f"labels/{block}.parquet") == before
    check_exact(tmp_path / "out")


def test_shards_hold_the_documented_columns_and_no_secret(tmp_path: Path) -> None:
    run(tmp_path / "out")
    documented = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    for name in [
        *LABELS_SCHEMA.names,
        *[f.name for f in LABELS_SCHEMA.field("steps").type.value_type],
    ]:
        assert f"`{name}`" in documented
    metadata, _ = next(iter_label_tables(Store(str(tmp_path / "out"))))
    assert metadata["schema_version"] == SCHEMA_VERSION
    assert metadata["config"]["estimator"]["rollouts"] == 4
    assert "torch" in metadata["versions"]
    assert str(Path.home()) not in json.dumps({k: v for k, v in metadata.items() if k != "config"})


def test_a_local_model_is_known_by_its_weights(tmp_path: Path) -> None:
    from mclabel.domains.arith import bundled_model

    moved = tmp_path / "elsewhere"
    shutil.copytree(bundled_model("policy"), moved)

    def semantic(model: object) -> object:
        return make_semantic_config(
            load_config(LabelConfig, None, ["out=x", f"policy.model={model}"])
        )

    assert semantic("arith:policy") == semantic(moved)
    weights = moved / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert semantic("arith:policy") != semantic(moved)


def test_the_heap_is_frozen_while_it_lasts_and_free_after_a_failure() -> None:
    with pytest.raises(ZeroDivisionError), freeze_heap():
        assert gc.get_freeze_count() > 1000
        _ = 1 / 0
    assert gc.get_freeze_count() == 0


def test_a_heap_that_somebody_else_froze_stays_frozen() -> None:
    gc.freeze()
    try:
        with freeze_heap():
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def worker(folder: Path, *, delay_s: float = 0.0, strict: bool = False) -> Worker:
    Store(str(folder), create=True)
    task = LabelTask(
        make_policy=partial(ScriptedEngine, scripted(delay_s=delay_s, poison=True)),
        settings=LabelSettings(
            solutions=SolutionSettings(per_problem=1),
            estimator=FixedEstimator.Settings(rollouts=1),
            strict=strict,
        ),
        provenance={},
    )
    return Worker(task, out=str(folder))


def lease(name: str, text: str = "", gold: str = "1", only: str | None = None) -> Lease:
    problem = Problem(id=f"p-{name}", text=f"{text} [answer 1]", answer=gold)
    return Lease(
        block=Block(id=name, items=(ProblemItem(problem),), priority=0),
        may_have_journals=False,
        only_item_id=only,
    )


def test_blocks_that_end_in_the_same_moment_are_reported_together_and_once(tmp_path: Path) -> None:
    async def run() -> None:
        started_worker = worker(tmp_path)
        await started_worker.start()
        blocks = RunningBlocks(started_worker)
        blocks.start_leases([lease(f"b{i}") for i in range(5)])
        ended = await blocks.wait_for_finished_leases(60)
        while len(ended) < 5:  # a busy machine may need several waits
            ended += await blocks.wait_for_finished_leases(60)
        assert sorted(block_id for block_id, _ in ended) == [f"b{i}" for i in range(5)]
        assert all(report is not None for _, report in ended)
        assert (
            blocks.unreported_block_ids == [] and await blocks.wait_for_finished_leases(0.01) == []
        )
        blocks.start_leases([lease("b5", only="p-b5")])
        assert await blocks.wait_for_finished_leases(60) == [
            ("b5", None)
        ]  # attempted, but not committed

    asyncio.run(run())
    assert read_committed_block_ids(Store(str(tmp_path))) == {f"b{i}" for i in range(5)}


def test_what_failed_stays_unreported_and_the_worse_failure_is_named(tmp_path: Path) -> None:
    async def run() -> None:
        started_worker = worker(tmp_path, strict=True)
        await started_worker.start()
        blocks = RunningBlocks(started_worker)
        blocks.start_leases([lease("kills", "[poison]")])
        while blocks.failure is None:
            assert await blocks.wait_for_finished_leases(1) == []
        assert isinstance(blocks.failure, EngineDied)
        blocks.start_leases([lease("bad", gold="")])
        while not isinstance(blocks.failure, DataError):
            await blocks.wait_for_finished_leases(1)
        assert blocks.unreported_block_ids == ["kills", "bad"]

    asyncio.run(run())


def test_what_is_stopped_leaves_its_journal_and_is_no_failure(tmp_path: Path) -> None:
    async def run() -> None:
        started_worker = worker(tmp_path, delay_s=0.2)
        await started_worker.start()
        blocks = RunningBlocks(started_worker)
        blocks.start_leases([lease("b0")])
        while (await started_worker.progress()).runner.counters["num_completions"] == 0:
            assert await blocks.wait_for_finished_leases(0.01) == []
        await blocks.stop()
        assert blocks.failure is None and blocks.unreported_block_ids == ["b0"]

    asyncio.run(run())
    assert list((tmp_path / "journals" / "b0").iterdir())


def test_an_actor_refuses_an_exchange_of_an_earlier_load(tmp_path: Path) -> None:
    """Nobody would receive the exchange's answer, and the job would wait for the block forever.

    The actor runs in this process. The test does not shut it down, because the shutdown would kill
    all processes that this process has started.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        actor = WorkerActor(partial(worker, tmp_path))
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(EngineNotLoaded):
        actor.exchange(1, [])
    actor.load(1)
    assert not actor.exchange(1, []).failed
    actor.load(2)
    with pytest.raises(EngineNotLoaded):
        actor.exchange(1, [lease("b0")])
    ended = [*actor.exchange(2, [lease("b1")]).ended]
    while not ended:
        ended += actor.exchange(2, []).ended
    assert sorted(block_id for block_id, _ in ended) == ["b1"]
    assert read_committed_block_ids(Store(str(tmp_path))) == {"b1"}


NUM_PROBLEMS = 16


def label(folder: Path, *overrides: str, poison: Collection[int] = (3, 13)) -> JobReport:
    """Run a job in blocks of four problems, some of which kill their engine."""
    source = folder / "problems.jsonl"
    rows = [
        {
            "id": f"p{i}",
            "problem": f"P{i} [answer {i}]{' [poison]' if i in poison else ''}",
            "answer": str(i),
        }
        for i in range(NUM_PROBLEMS)
    ]
    source.write_text("\n".join(map(json.dumps, rows)))
    changes = scripted_overrides(source, folder / "out", *overrides)
    return jobs.label(load_config(LabelConfig, write_config(folder), changes), lambda state: None)


def rejects(out: Path) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in (out / FILE).read_text().splitlines()]


class OutsideEngine(ScriptedEngine):
    """An engine from outside mclabel, which messages name when its actor's process dies."""


IN_ACTORS = pytest.param("local", {3}, marks=pytest.mark.ray)  # each kill costs seconds


@pytest.mark.parametrize(("address", "poison"), [("none", {3, 13}), IN_ACTORS])
def test_poison_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path, address: str, poison: set[int]
) -> None:
    """In actors the engine kills its whole process, as happens when memory runs out.

    The test of completers below covers an engine that fails by itself in an actor.
    """
    hard = address == "local"
    kind = f"{__name__}:OutsideEngine" if hard else "scripted"
    scripted = f"kind: {kind!r}, poison: true, repeatable: false, crash_hard: {hard}"
    scripted = f"policy.engine={{{scripted}}}"
    more = [scripted, f"ray.address={address}", "ray.max_engines=2", "journal_s=0.2"]
    more.append("estimator.kind=fixed")
    assert label(tmp_path, *more, poison=poison).num_rejected == len(poison)
    out = tmp_path / "out"
    check_solutions(Store(str(out)), sorted(set(range(NUM_PROBLEMS)) - poison))
    rejected = rejects(out)
    names = sorted(f"p{number}" for number in poison)
    assert [row["problem_id"] for row in rejected] == names
    for row in rejected:
        assert row["reason"] == "kills_engine" and row["row"] is row["source"] is None
        assert row["detail"] and len(row["detail"]) <= 500
        outside = f"{__name__}:OutsideEngine from outside mclabel"
        assert (outside if hard else "the engine died, as its settings demand") in row["detail"]
    set_aside = [metadata["set_aside"] for metadata, _ in iter_label_tables(Store(str(out)))]
    assert sorted(name for block_names in set_aside for name in block_names) == names
    assert not list((out / "journals").rglob("*.gz"))
    # On a second run nothing is left to do, and no reject is reported twice.
    again = label(tmp_path, *more, poison=poison)
    assert (again.num_items, again.num_rejected) == (0, len(poison))
    assert rejects(out) == rejected


@pytest.mark.parametrize(("address", "poison"), [("none", {3, 13}), IN_ACTORS])
def test_what_kills_a_completer_is_set_aside_by_its_name(
    tmp_path: Path, address: str, poison: set[int]
) -> None:
    poisoned = "{kind: scripted, poison: true, repeatable: false}"
    report = label(
        tmp_path,
        *("policy.engine={kind: scripted, repeatable: false}", f"ray.address={address}"),
        *("ray.max_engines=2", "journal_s=0.2", "estimator.kind=fixed"),
        f"completers=[{{model: policy, cost: 1}}, {{model: other, cost: 2, engine: {poisoned}}}]",
        poison=poison,
    )
    assert report.num_rejected == len(poison)
    check_solutions(Store(str(tmp_path / "out")), sorted(set(range(NUM_PROBLEMS)) - poison))
    for row in rejects(tmp_path / "out"):
        assert row["reason"] == "kills_engine" and row["detail"] is not None
        assert "completer other: " in row["detail"]
        assert "the engine died, as its settings demand" in row["detail"]


def test_a_block_that_another_attempt_committed_whole_rejects_nothing(tmp_path: Path) -> None:
    label(tmp_path, "ray.address=none")
    store = Store(str(tmp_path / "out"))
    for name in store.names("labels"):
        block = name.removeprefix("labels/").removesuffix(".parquet")
        store.create(f"rejects/{block}.json", b"{}")
    assert write_rejects(store, read_set_aside(store)) == 0
    assert store.read(FILE) is None
