"""Problems that kill engines are set aside with their reason, and the job continues."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.engines.scripted import ScriptedEngine
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.rejects import FILE, read_set_aside, write_rejects
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.exactness import check_solutions
from tests.support.scripted_jobs import scripted_overrides, write_config

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
    found = rejects(out)
    names = sorted(f"p{number}" for number in poison)
    assert [row["problem_id"] for row in found] == names
    for row in found:
        assert row["reason"] == "kills_engine" and row["row"] is row["source"] is None
        assert row["detail"] and len(row["detail"]) <= 500
        outside = f"{__name__}:OutsideEngine from outside mclabel"
        assert (outside if hard else "the engine died, as its settings demand") in row["detail"]
    told = [metadata["set_aside"] for metadata, _ in label_tables(Store(str(out)))]
    assert sorted(name for one in told for name in one) == names
    assert not list((out / "journals").rglob("*.gz"))
    # On a second run nothing is left to do, and no reject is reported twice.
    again = label(tmp_path, *more, poison=poison)
    assert (again.num_items, again.num_rejected) == (0, len(poison))
    assert rejects(out) == found


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


def test_what_was_set_aside_is_found_after_a_kill(tmp_path: Path) -> None:
    label(
        tmp_path,
        "policy.engine={kind: scripted, poison: true}",
        "ray.address=none",
        "estimator.kind=fixed",
    )
    out = tmp_path / "out"
    store = Store(str(out))
    found = rejects(out)
    (out / FILE).unlink()
    assert write_rejects(store, read_set_aside(store)) == 2 and rejects(out) == found


def test_a_block_that_another_attempt_committed_whole_rejects_nothing(tmp_path: Path) -> None:
    label(tmp_path, "ray.address=none")
    store = Store(str(tmp_path / "out"))
    for name in store.names("labels"):
        block = name.removeprefix("labels/").removesuffix(".parquet")
        store.create(f"rejects/{block}.json", b"{}")
    assert write_rejects(store, read_set_aside(store)) == 0
    assert store.read(FILE) is None
