"""`mclabel.load_labels` and `mclabel export --to parquet` give the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mclabel
from mclabel.core.errors import ConfigError
from mclabel.data.exchange.job import export_tables
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


def label_problems(folder: Path, out: str | Path, *more: str) -> None:
    overrides = scripted_overrides(write_problems(folder, 12), Path("unused"), "ray.address=none")
    overrides = [o for o in overrides if not o.startswith("out=")]
    run_label_job([*overrides, f"out={out}", *more])


def list_rows(data: datasets.Dataset) -> list[dict[str, Any]]:
    return sorted(data.to_list(), key=lambda row: json.dumps(row, sort_keys=True))


def test_labels_rollouts_and_steps_of_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    label_problems(tmp_path, run)
    labels = mclabel.load_labels(run, cache_dir=tmp_path)
    rollouts = mclabel.load_rollouts(run, cache_dir=tmp_path)
    assert labels.column_names == LABELS_SCHEMA.names and labels.num_rows == 48
    assert rollouts.column_names == ROLLOUTS_SCHEMA.names
    assert all("".join(s["text"] for s in row["steps"]) == row["solution"] for row in labels)
    assert {row.solution.id for row in mclabel.read_labels(run)} == set(labels["solution_id"])
    steps = mclabel.load_steps(run).to_pandas()
    assert len(steps) == sum(map(len, labels["steps"]))
    wrong_row = next(row for row in mclabel.read_labels(run) if row.first_error is not None)
    mine = steps[steps.solution_id == wrong_row.solution.id]
    assert mine[mine.first_error == True].step_index.tolist() == [wrong_row.first_error]  # noqa: E712
    assert mine.text.tolist() == [step.text for step in wrong_row.solution.steps]
    head, *lines = repr(wrong_row).splitlines()
    assert f"first error: {wrong_row.first_error}" in head and len(lines) == len(wrong_row.steps)
    assert list_rows(labels.filter(lambda row: row["outcome"] == "right", num_proc=2))


def test_memory_is_bounded_by_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    label_problems(tmp_path, run)
    held: list[int] = []

    def watch_tables(store: Store) -> Iterator[Any]:
        for metadata, table in iter_label_tables(store):
            held.append(pa.total_allocated_bytes())
            for _ in range(30):
                yield metadata, pa.concat_tables([table] * 40).combine_chunks()
                held.append(pa.total_allocated_bytes())

    monkeypatch.setattr("mclabel.data.loading.iter_label_tables", watch_tables)
    assert mclabel.load_labels(run, cache_dir=tmp_path).num_rows == 48 * 40 * 30
    assert (
        max(held) - min(held) < sum(path.stat().st_size for path in tmp_path.rglob("*.arrow")) / 5
    )


def test_export_to_parquet_is_what_any_reader_reads(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "plain"
    label_problems(tmp_path, run)
    out.mkdir()
    (out / "labels-00007.parquet").write_bytes(b"of an earlier export")
    assert run_verb(["export", str(run), "--to", "parquet", "-o", str(out)]).output.startswith(
        "48 solutions and "
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "labels-00000.parquet",
        "rollouts-00000.parquet",
    ]
    expected = list_rows(mclabel.load_labels(run, cache_dir=tmp_path))
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert list_rows(loaded) == expected
    loaded = datasets.load_dataset(str(out), "rollouts", cache_dir=str(tmp_path / "cache"))
    assert list_rows(loaded["train"]) == list_rows(mclabel.load_rollouts(run, cache_dir=tmp_path))
    assert pq.read_schema(out / "labels-00000.parquet").equals(LABELS_SCHEMA)


def test_export_in_several_files_and_without_rollouts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    label_problems(tmp_path, run, "keep_rollouts=false")
    report = export_tables(str(run), str(tmp_path / "plain"), file_bytes=1)
    assert report.files == tuple(f"labels-{i:05d}.parquet" for i in range(3))
    num_loaded = mclabel.load_rollouts(run, cache_dir=tmp_path).num_rows
    assert (report.num_labels, report.num_rollouts, num_loaded) == (48, 0, 0)
    assert (
        datasets.load_dataset(str(tmp_path / "plain"), cache_dir=str(tmp_path / "cache"))[
            "train"
        ].num_rows
        == 48
    )
    assert "config_name: rollouts" not in (tmp_path / "plain" / "README.md").read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: cannot be written"):
        export_tables(str(run), str(tmp_path / "file"))
