"""Damage to each file of outputs of every kind: `verify` tells it, and no reader gives other data.

How a verb ends on a damaged run is in `tests/test_broken_inputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mclabel as mc
from mclabel.core.errors import DamagedFile, MclabelError, ShardError
from mclabel.run.shards.digest import check_parquet_digest, encode_parquet_with_digest
from mclabel.run.shards.labels import read_committed_block_ids, read_labels
from mclabel.run.shards.schema import LABELS_SCHEMA
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from mclabel.run.verify.run import verify
from tests.support.damaged import KINDS, READERS, damaged, damages
from tests.support.exactness import check_exact
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


@pytest.mark.parametrize(
    ("kind", "every"),
    [
        ("labels", 9),
        *(pytest.param(kind, 1, marks=pytest.mark.slow) for kind in KINDS),
    ],
)
def test_no_damage_is_silent_or_read_wrongly(kind: str, every: int, tmp_path: Path) -> None:
    """The plain run tests each ninth damage of a finished run's labels."""
    make, names = KINDS[kind]
    for number, name in enumerate(("one", "other"), 1):
        (tmp_path / name).mkdir()
        made = make(tmp_path / name, number)
    run, other_run = tmp_path / "one" / made.name, made
    store = Store(str(run))
    before = {name: READERS[name](run) for name in names}
    verification, is_begun = verify(store), kind == "begun labels"
    assert verification.is_sound and bool(verification.notes) == is_begun
    faults, count = [], 0
    for damage_name, changes in islice(damages(run, other_run), 0, None, every):
        if all((run / name).read_bytes() == content for name, content in changes.items()):
            continue
        if is_begun and not damage_name.startswith(("bit", "cut")):
            continue  # what such a run lacks may not have been written yet
        count += 1
        with damaged(run, changes):
            try:
                verification = verify(store)
            except MclabelError as error:  # there is no run any more, or a pipe in it
                named = [Path(name).name for name in changes]
                assert any(name in str(error) for name in ("holds no run", *named))
                continue
            is_told = not verification.is_sound or any(
                n.startswith(tuple(changes)) for n in verification.notes
            )
            is_harmless = is_begun  # a header of gzip, white space of JSON
            for name in names:
                try:
                    rows = READERS[name](run)
                except MclabelError as error:  # any other is a traceback, and fails the test
                    is_harmless = False
                    if "\n" in str(error):
                        faults.append((damage_name, *changes, f"{name}: {error}"))
                else:
                    is_harmless = is_harmless and rows == before[name]
                    if not all(row in before[name] for row in rows):
                        faults.append((damage_name, *changes, f"{name} gives other data"))
            if not is_told and not is_harmless:
                faults.append((damage_name, *changes, "silent"))
    assert faults == [] and count > 20
    assert verify(store).is_sound


def label(folder: Path, *more: str) -> JobReport:
    changes = scripted_overrides(folder / "problems.jsonl", folder / "run", "ray.address=none")
    return run_label_job([*changes, *more])


def test_a_cut_shard_stops_a_resumed_job_and_is_labelled_again_once_deleted(
    tmp_path: Path,
) -> None:
    write_problems(tmp_path, 12)
    label(tmp_path)
    run = tmp_path / "run"
    store = Store(str(run))
    shards = sorted((run / "labels").iterdir())
    for shard, end in zip(shards, (5000, 0, -1), strict=True):
        shard.write_bytes(shard.read_bytes()[:end])
        with pytest.raises(ShardError, match=f"labels/{shard.name}: damaged: it is cut off. Del"):
            label(tmp_path)
        shard.unlink()
        fault = f"labels/{shard.name}: missing, though the job has ended with all of its blocks"
        with pytest.raises(DamagedFile, match=fault):
            mc.load_labels(run)
        kept = read_committed_block_ids(store, require_complete=False)
        assert len(kept) == 2 and len(list(read_labels(store, kept))) == 32
        assert label(tmp_path).num_blocks_resumed == 2
        check_exact(run, 12)
    for shard in shards:
        shard.write_bytes(b"")
    with pytest.raises(ShardError, match=r"Do the same for 2 other damaged files: labels/.*, "):
        label(tmp_path)


def test_a_shard_that_is_deleted_while_the_run_is_read_is_named(tmp_path: Path) -> None:
    write_problems(tmp_path, 8)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    _, second = store.names("labels")
    rows = read_labels(store)
    next(rows)
    store.delete(second)
    with pytest.raises(DamagedFile, match=f"{second}: missing, though it is part of the run"):
        list(rows)


Change = Callable[[pa.Table], pa.Table]
BROKEN = "damaged, or not a labels shard"


def _with_text(table: pa.Table, column: str, text: str) -> pa.Table:
    """Return a table of labels with another text in all rows of a column."""
    texts = pa.array([text] * len(table))
    return table.set_column(table.column_names.index(column), LABELS_SCHEMA.field(column), texts)


ROW_CHANGES: list[Change] = [
    lambda table: _with_text(table, "meta", "no JSON"),
    lambda table: _with_text(table, "outcome", "odd"),
]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (None, "rewritten by another program: it has no digest"),
        (lambda table: table.drop_columns(["problem_id"]), BROKEN),
        (lambda table: table.drop_columns(["consensus"]), BROKEN),
        (lambda table: table.set_column(0, "problem_id", pa.array([1] * len(table))), BROKEN),
        *((change, BROKEN) for change in ROW_CHANGES),
        (
            lambda table: table.replace_schema_metadata({}),
            "schema version None; this mclabel reads 'labels', version 1. Make the run again",
        ),
    ],
)
def test_a_whole_shard_that_mclabel_did_not_write_is_named(
    tmp_path: Path, change: Change | None, fault: str
) -> None:
    write_problems(tmp_path, 4)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    (name,) = store.names("labels")
    path = tmp_path / "run" / name
    table = pq.read_table(path)
    if change is None:
        pq.write_table(table, path)
    else:
        broken = change(table)
        if broken.schema.metadata is None and "version" not in fault:
            broken = broken.replace_schema_metadata(table.schema.metadata)
        path.write_bytes(encode_parquet_with_digest(broken))
    with pytest.raises(DamagedFile, match=f"{name}: .*{fault}"):
        list(read_labels(store))
    is_found = any(finding.name == name for finding in verify(store).damage)
    assert is_found != (change in ROW_CHANGES)  # `verify` does not read the texts of rows


def test_every_single_bit_of_a_small_file_is_covered() -> None:
    content = encode_parquet_with_digest(pa.table({"a": ["x"]}), compression="none")
    assert check_parquet_digest(content) == "sound"
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        assert check_parquet_digest(bytes(changed)) != "sound"


def test_a_text_that_looks_like_a_digest_is_not_taken_for_it() -> None:
    false = "mclabel.digest\x18\x47sha256:" + "0" * 64 + "\x00"
    content = encode_parquet_with_digest(pa.table({"a": [false]}), compression="none")
    assert check_parquet_digest(content) == "sound"
    assert check_parquet_digest(content.replace(b"\x00PAR1", b"\x00PAR2")) == "damaged"
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == [{"a": false}]
