"""Merging shards: the same rows, at any moment, whatever is killed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel.cli import main
from mclabel.core.errors import ShardError
from mclabel.core.records import LabeledSolution
from mclabel.run.shards import compact as compaction
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.compact import compact
from mclabel.run.shards.labels import (
    commit_block,
    label_tables,
    read_labels,
    read_rollouts,
)
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.exactness import check_exact
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


def label(out: Path, *overrides: str) -> JobReport:
    more = ["ray.address=none", "block_problems=1", *overrides]
    changes = scripted_overrides(write_problems(out.parent, 20), out, *more)
    return run_label_job(changes)


def by_id(store: Store) -> list[LabeledSolution]:
    return sorted(read_labels(store), key=lambda row: row.solution.id)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    label(folder / "out")
    return folder / "out"


@pytest.fixture
def out(labelled: Path, tmp_path: Path) -> Path:
    """A copy of a run, for one test to merge."""
    return Path(shutil.copytree(labelled, tmp_path / "out"))


def test_merged_shards_hold_the_same_rows_and_the_job_finds_them_done(out: Path) -> None:
    store = Store(str(out))
    rows, rollouts = by_id(store), sorted(read_rollouts(store), key=str)
    done = compact(store, rows=24)
    assert (done.num_before, done.num_after, done.num_solutions) == (20, 4, 80)
    assert by_id(store) == rows and sorted(read_rollouts(store), key=str) == rollouts
    assert store.names("labels") == [] and store.names("rollouts") == []
    check_exact(out)
    assert label(out).num_blocks_resumed == 20
    check_exact(out)
    # A larger size merges the merged ones again.
    assert compact(store, rows=1000).num_after == 1
    assert by_id(store) == rows and len(store.names("merged")) == 2
    assert compact(store, rows=1000).num_after == 1
    result = CliRunner().invoke(main, ["compact", str(out)])
    assert "1 shards are now 1 (0 solutions merged)" in result.output


def test_labelling_goes_on_after_a_merge(out: Path) -> None:
    store = Store(str(out))
    kept = by_id(store)
    for name in (store.names("labels")[3], "finished.json"):  # as if the job were under way
        (out / name).unlink()
    compact(store, rows=1000)
    assert label(out, "policy.engine={kind: scripted, repeatable: false}").num_blocks_resumed == 19
    check_exact(out)
    assert sum(a == b for a, b in zip(by_id(store), kept, strict=True)) >= 76


def test_a_straggler_s_block_that_was_merged_is_not_read_twice(out: Path) -> None:
    store = Store(str(out))
    block = sorted(read_catalog(store).blocks)[0]
    metadata, table = next(label_tables(store))
    late = [row for row in read_labels(store)][: len(table)]
    rows = by_id(store)
    compact(store, rows=1000)
    commit_block(store, block, "late", late, [], {"versions": metadata["versions"]})
    assert by_id(store) == rows
    label(out)  # ends with no attempt under way: what lost is deleted
    assert store.names("labels") == [] and store.names("rollouts") == []


def test_a_reader_overtaken_by_a_merge_reads_every_row_once(out: Path) -> None:
    store = Store(str(out))
    rows = by_id(store)

    def slow() -> Iterator[LabeledSolution]:
        for number, row in enumerate(read_labels(store)):
            if number == 5:
                compact(store, rows=30)
            if number == 41:
                compact(store, rows=1000)
            yield row

    assert sorted(slow(), key=lambda row: row.solution.id) == rows


def test_rollouts_read_while_shards_are_merged_are_read_once(
    out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(out))
    rollouts = sorted(read_rollouts(store), key=str)
    read, left = Store.read, 7

    def overtaken(self: Store, name: str) -> bytes | None:
        nonlocal left
        left -= name.startswith("labels/")
        if left == 0:
            left = -1
            compact(Store(str(out)), rows=1000)
        return read(self, name)

    monkeypatch.setattr(Store, "read", overtaken)
    assert sorted(read_rollouts(store), key=str) == rollouts
    assert store.names("labels") == []


def test_of_two_merges_at_once_one_wins(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(str(out))
    rows = by_id(store)
    write = compaction._write

    def overtaken(*args: object) -> None:
        monkeypatch.setattr(compaction, "_write", write)
        compact(Store(str(out)), rows=1000)
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(compaction, "_write", overtaken)
    with pytest.raises(ShardError, match="has merged it in the meantime, so nothing was changed"):
        compact(store, rows=1000)
    assert by_id(store) == rows and len(store.names("merged")) == 2
