"""Findings of `mclabel verify` other than damaged bytes, on runs of every kind."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mclabel import jobs
from mclabel.core.records import LabeledSolution
from mclabel.labeling.journal import make_solution_line
from mclabel.run.shards.journal import write_journal
from mclabel.run.shards.labels import commit_block, iter_label_tables, read_labels, read_rollouts
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from mclabel.run.verify.single_files import Verification
from tests.support.labelled import arith_rows
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

Label = Callable[..., Store]


@pytest.fixture(scope="module")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that makes a run with given settings once, and returns its folder."""

    @cache
    def label_problems(*more: str) -> Path:
        folder = tmp_path_factory.mktemp("labelled")
        source = write_problems(folder, 12)
        run_label_job(scripted_overrides(source, folder / "run", "ray.address=none", *more))
        return folder

    return label_problems


@pytest.fixture
def copy_run(make_run: Callable[..., Path], tmp_path: Path) -> Label:
    """Return a function that copies a run with given settings to the test's folder."""

    def copy_files(*more: str) -> Store:
        shutil.copytree(make_run(*more), tmp_path, dirs_exist_ok=True)
        return Store(str(tmp_path / "run"))

    return copy_files


def faults(verification: Verification) -> list[str]:
    return [str(damage) for damage in verification.damage]


@pytest.mark.parametrize(
    "more",
    [
        ["estimator.kind=fixed"],
        ["estimator.kind=first_error"],
        ["estimator.kind=bisect"],
        ["estimator.kind=tree"],
        ["keep_rollouts=false"],
        ["solutions.balance=1", "solutions.max_samples=4"],
        ["estimator.kind=posterior", "policy.engine={kind: scripted, truncate_rate: 0.2}"],
    ],
    ids=lambda more: " ".join(more),
)
def test_runs_of_every_kind_are_sound(tmp_path: Path, copy_run: Label, more: list[str]) -> None:
    store = copy_run(*more)
    verification = verify(store)
    assert faults(verification) == [] and verification.notes == []
    rows, rollouts = len(list(read_labels(store))), len(list(read_rollouts(store)))
    assert (verification.num_blocks, verification.num_solutions, verification.num_rollouts) == (
        3,
        rows,
        rollouts,
    )


def test_runs_that_were_graded_again_or_imported_are_sound(tmp_path: Path, copy_run: Label) -> None:
    store = copy_run()
    jobs.regrade(store.location, str(tmp_path / "again"))
    jobs.export_run(store.location, "trl", str(tmp_path / "trl"))
    jobs.import_file(str(tmp_path / "trl" / "data.jsonl"), "trl", str(tmp_path / "imported"))
    for run, blocks in (("again", 3), ("imported", 1)):
        verification = verify(Store(str(tmp_path / run)))
        assert (
            verification.is_sound
            and verification.num_blocks == blocks
            and verification.num_solutions == 48
        )


Rows = list[LabeledSolution]


def _other_counts(rows: Rows) -> Rows:
    first = rows[0]
    counts = replace(first.steps[0].counts, num_tokens=first.steps[0].counts.num_tokens + 1)
    steps = (replace(first.steps[0], counts=counts), *first.steps[1:])
    return [replace(first, steps=steps), *rows[1:]]


def _other_root(rows: Rows) -> Rows:
    root = replace(rows[0].root, num_wrong=rows[0].root.num_wrong + 1)
    return [replace(row, root=root) if row.problem == rows[0].problem else row for row in rows]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_other_counts, "1 prefixes have counts that differ from their rollouts"),
        (_other_root, "4 prefixes have counts that differ from their rollouts"),
        (lambda rows: [*rows, rows[0]], "holds 1 solutions twice"),
        (lambda rows: rows[4:], "1 problems have rollouts but no labels (p0)"),
    ],
)
def test_labels_that_do_not_agree_with_their_rollouts(
    tmp_path: Path, copy_run: Label, change: Callable[[Rows], Rows], fault: str
) -> None:
    store = copy_run("block_problems=12")
    rows, rollouts = list(read_labels(store)), list(read_rollouts(store))
    rows.sort(key=lambda row: (row.problem.id, row.solution.sample_index))
    store = Store(str(tmp_path / "new"), create=True)
    assert commit_block(store, "new", "a", change(rows), rollouts, {})
    verification = verify(store)
    assert any(line.startswith(f"labels/new.parquet: {fault}") for line in faults(verification)), (
        verification
    )


def test_problems_in_two_blocks_a_foreign_shard_and_one_under_a_false_name(
    tmp_path: Path, copy_run: Label
) -> None:
    copy_run()
    jobs.regrade(str(tmp_path / "run"), str(tmp_path / "again"))  # a regraded run has no plan
    store = Store(str(tmp_path / "again"))
    first, second, _ = store.names("labels")
    rows = list(read_labels(store))
    metadata, _ = next(iter_label_tables(store))
    commit_block(store, "f" * 16, "a", rows[:8], None, {"config": metadata["config"]})
    store.create("labels/copy.parquet", store.read(second) or b"")
    store.create("labels/notes.txt", b"mine")
    verification = verify(store)
    lines = "\n".join(faults(verification))
    assert "labels/copy.parquet: holds block" in lines and "but must hold 'copy'" in lines
    assert f"{first}: 2 of its problems also occur in labels/ffffffffffffffff.parquet" in lines
    assert verification.num_damaged == 2
    assert any("labels/notes.txt" in note for note in verification.notes)


def test_blocks_are_compared_with_the_plan(tmp_path: Path, copy_run: Label) -> None:
    store = copy_run("block_problems=2")
    name, *_ = store.names("labels")
    rows = [row for row in read_labels(store, [name[7:-8]])]
    store.delete(name)
    store.create("labels/mine.parquet", store.read(store.names("labels")[0]) or b"")
    moved = replace(rows[0].problem, id="p99")
    rows = [replace(row, problem=moved) if row.problem == rows[0].problem else row for row in rows]
    commit_block(store, name[7:-8], "a", rows, None, {})
    verification = verify(store)
    (line,) = faults(verification)
    assert line.startswith(
        f"{name}: lacks 1 problems that the plan assigns to it, and holds 1 other problems"
    )
    assert "1 files in labels/ do not belong to any block of the plan" in "\n".join(
        verification.notes
    )


def test_superseded_labels_are_not_counted(tmp_path: Path, copy_run: Label) -> None:
    store = copy_run()
    source = tmp_path / "problems.jsonl"
    source.write_text(source.read_text().replace('"answer": "3"', '"answer": "33"'))
    changes = scripted_overrides(source, tmp_path / "run", "ray.address=none")
    run_label_job(changes, accept_changes=True)
    verification = verify(store)
    assert faults(verification) == [] and verification.notes == []
    assert (verification.num_blocks, verification.num_solutions) == (4, 48)
    part = tmp_path / "run" / "plan" / "000001.parquet"
    part.unlink()
    (line,) = faults(verify(store))
    assert line.startswith("plan/000001.parquet: missing, though plan/000002.parquet is there")


def test_missing_rollouts_and_priors_and_what_is_left_over(tmp_path: Path, copy_run: Label) -> None:
    store = copy_run("estimator.kind=posterior")
    rollouts = store.names("rollouts")
    content = store.read(rollouts[0]) or b""
    store.delete(rollouts[0])
    store.create("rollouts/0123456789abcdef.killed.parquet", content)
    (priors,) = store.names("priors")
    store.delete(priors)
    block = rollouts[1].removeprefix("rollouts/").partition(".")[0]
    write_journal(store, block, "late", 0, [make_solution_line(next(read_labels(store)).solution)])
    verification = verify(store)
    missing, gone = faults(verification)
    assert missing.startswith(f"{rollouts[0]}: missing, though a labels shard names it")
    assert f"delete it and labels/{rollouts[0][9:25]}.parquet and run the job again" in missing
    assert gone.startswith(f"{priors}: missing, though labels depend on it")
    assert [note.partition(" ")[0] for note in verification.notes] == ["1", "1"]
    assert "rollouts files do not belong to any labels shard" in verification.notes[0]
    assert "journals belong to finished blocks" in verification.notes[1]


def test_labels_without_solutions_or_steps_are_sound(tmp_path: Path) -> None:
    store = Store(str(tmp_path), create=True)
    row, *_ = arith_rows(1)
    empty = replace(row, solution=replace(row.solution, text="", ids=(), steps=()), steps=())
    commit_block(store, "a" * 16, "a", [], [], {})
    commit_block(store, "b" * 16, "a", [empty], [], {})
    verification = verify(store)
    assert verification.is_sound and (verification.num_blocks, verification.num_solutions) == (2, 1)
