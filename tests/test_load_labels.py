"""`mclabel.load_labels` and `mclabel export --to parquet`: the same rows at any time of a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import mclabel
from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DamagedFile
from mclabel.data.exchange.job import export_tables
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.compact import compact
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.store import Store
from tests.support.flaky_s3 import FlakyS3, flaky_s3, s3_environment
from tests.support.scripted_jobs import scripted_overrides, write_problems


def label(folder: Path, out: str | Path, *more: str) -> None:
    overrides = scripted_overrides(write_problems(folder, 12), Path("unused"), "ray.address=none")
    overrides = [o for o in overrides if not o.startswith("out=")]
    config = load_config(LabelConfig, None, [*overrides, f"out={out}", *more])
    jobs.label(config, lambda state: None)


def rows(data: datasets.Dataset) -> list[dict[str, Any]]:
    return sorted(data.to_list(), key=lambda row: json.dumps(row, sort_keys=True))


def test_before_while_and_after_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    label(tmp_path, run)
    store = Store(str(run))
    labels = mclabel.load_labels(run, cache_dir=tmp_path)
    rollouts = mclabel.load_rollouts(run, cache_dir=tmp_path)
    assert labels.column_names == LABELS_SCHEMA.names and labels.num_rows == 48
    assert rollouts.column_names == ROLLOUTS_SCHEMA.names
    assert all("".join(s["text"] for s in row["steps"]) == row["solution"] for row in labels)
    assert {row.solution.id for row in mclabel.read_labels(run)} == set(labels["solution_id"])
    read, merged = Store.read, False

    def overtaken(self: Store, name: str) -> bytes | None:
        nonlocal merged
        if name == second and not merged:
            merged = True
            compact(Store(str(run)), rows=1000)
        return read(self, name)

    second = store.names("labels")[1]
    monkeypatch.setattr(Store, "read", overtaken)
    assert rows(mclabel.load_labels(run, cache_dir=tmp_path)) == rows(labels)
    assert merged and store.names("labels") == []
    assert rows(mclabel.load_labels(run, cache_dir=tmp_path)) == rows(labels)
    assert rows(mclabel.load_rollouts(run, cache_dir=tmp_path)) == rows(rollouts)
    assert rows(labels.filter(lambda row: row["outcome"] == "right", num_proc=2))


def test_damage_is_named_and_a_run_without_rollouts_has_none(tmp_path: Path) -> None:
    run = tmp_path / "run"
    label(tmp_path, run, "keep_rollouts=false")
    assert mclabel.load_rollouts(run, cache_dir=tmp_path).num_rows == 0
    shard = sorted((run / "labels").iterdir())[0]
    shard.write_bytes(shard.read_bytes()[:-50])
    with pytest.raises(DamagedFile, match=f"labels/{shard.name}: damaged"):
        mclabel.load_labels(run, cache_dir=tmp_path)


def test_memory_is_bounded_by_a_shard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    label(tmp_path, run)
    held: list[int] = []

    def watched(store: Store) -> Iterator[Any]:
        for metadata, table in label_tables(store):
            held.append(pa.total_allocated_bytes())
            for _ in range(30):
                yield metadata, pa.concat_tables([table] * 40).combine_chunks()
                held.append(pa.total_allocated_bytes())

    monkeypatch.setattr("mclabel.data.loading.label_tables", watched)
    data = mclabel.load_labels(run, cache_dir=tmp_path)
    assert data.num_rows == 48 * 40 * 30
    written = sum(path.stat().st_size for path in tmp_path.rglob("*.arrow"))
    assert max(held) - min(held) < written / 5


@pytest.mark.slow
def test_the_file_goes_with_the_process(tmp_path: Path) -> None:
    label(tmp_path, tmp_path / "run")
    code = (
        "import mclabel, pathlib, sys\n"
        "data = mclabel.load_labels(sys.argv[1], cache_dir=sys.argv[2])\n"
        "print(data.num_rows, len(list(pathlib.Path(sys.argv[2]).rglob('*.arrow'))))"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "run"), str(tmp_path / "cache")]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["48", "1"]
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyS3]:
    with flaky_s3("bucket") as proxy:
        yield proxy


@pytest.mark.slow
def test_a_run_in_a_bucket(
    server: FlakyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_environment(server).items():
        monkeypatch.setenv(name, value)
    run = "s3://bucket/run"
    label(tmp_path, run)
    labels = rows(mclabel.load_labels(run, cache_dir=tmp_path))
    assert CliRunner().invoke(main, ["verify", run]).exit_code == 0
    compact(Store(run), rows=1000)
    assert rows(mclabel.load_labels(run, cache_dir=tmp_path)) == labels
    (shard,) = Store(run).names("merged/labels")
    content = bytearray(Store(run).read(shard) or b"")
    content[len(content) // 2] ^= 4
    Store(run).delete(shard)
    Store(run).create(shard, bytes(content))
    with pytest.raises(DamagedFile, match=f"{run}/{shard}: damaged"):
        mclabel.load_labels(run, cache_dir=tmp_path)
    result = CliRunner().invoke(main, ["verify", run])
    assert result.exit_code == 1 and f"{shard}: damaged" in result.output.replace("\n", "")
    Store(run).delete(shard)
    Store(run).create(shard, b"")
    with pytest.raises(DamagedFile, match=f"{shard}: damaged: it is cut off"):
        label(tmp_path, run)


def test_export_to_parquet_is_what_any_reader_reads(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "plain"
    label(tmp_path, run)
    compact(Store(str(run)), rows=1000)
    out.mkdir()
    (out / "labels-00007.parquet").write_bytes(b"of an earlier export")
    result = CliRunner().invoke(main, ["export", str(run), "--to", "parquet", "-o", str(out)])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("48 solutions and ")
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "labels-00000.parquet",
        "rollouts-00000.parquet",
    ]
    expected = rows(mclabel.load_labels(run, cache_dir=tmp_path))
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))["train"]
    assert rows(loaded) == expected
    loaded = datasets.load_dataset(str(out), "rollouts", cache_dir=str(tmp_path / "cache"))
    assert rows(loaded["train"]) == rows(mclabel.load_rollouts(run, cache_dir=tmp_path))
    assert pq.read_schema(out / "labels-00000.parquet").equals(LABELS_SCHEMA)


def test_export_in_several_files_and_without_rollouts(tmp_path: Path) -> None:
    run = tmp_path / "run"
    label(tmp_path, run, "keep_rollouts=false")
    report = export_tables(str(run), str(tmp_path / "plain"), file_bytes=1)
    assert report.files == tuple(f"labels-{i:05d}.parquet" for i in range(3))
    assert (report.num_labels, report.num_rollouts) == (48, 0)
    loaded = datasets.load_dataset(str(tmp_path / "plain"), cache_dir=str(tmp_path / "cache"))
    assert loaded["train"].num_rows == 48
    assert "config_name: rollouts" not in (tmp_path / "plain" / "README.md").read_text()
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file: cannot be written"):
        export_tables(str(run), str(tmp_path / "file"))


def test_no_documented_way_to_read_labels_is_a_glob() -> None:
    root = Path(__file__).parents[1]
    for name in ("README.md", *(f"docs/{page.name}" for page in (root / "docs").glob("*.md"))):
        text = (root / name).read_text(encoding="utf-8")
        assert "labels/*" not in text, name
    assert "mc.load_labels" in (root / "README.md").read_text(encoding="utf-8")
    assert "load_labels(" in (root / "docs" / "labelling.md").read_text(encoding="utf-8")
    assert "labels/*" not in (root / "mclabel" / "quickstart" / "toy.py").read_text(
        encoding="utf-8"
    )
