"""Runs of earlier releases: read as those read them, and not resumed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import mclabel
from mclabel.cli import main
from mclabel.data.shards.labels import label_tables, read_labels, read_rollouts
from mclabel.data.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA, SCHEMA_VERSION
from mclabel.data.shards.shard import METADATA_KEY
from mclabel.data.shards.store import Store
from mclabel.data.verify.run import verify
from mclabel.errors import DamagedFile
from mclabel.report.page.facts import run_facts
from mclabel.report.runs import find_runs
from tests.support.earlier_runs import RUNS, VERSIONS, unpack

every_run = pytest.mark.parametrize("name", RUNS)
every_version = pytest.mark.parametrize("version", VERSIONS)


@every_version
@every_run
def test_records_are_those_that_the_release_read(version: int, name: str, tmp_path: Path) -> None:
    run = unpack(version, name, tmp_path)
    read = json.loads((run / "read.json").read_text())
    unsaid = {"completers": [], "values_of": "policy", "consensus": None}
    labels = [unsaid | _renamed(row) for row in read["labels"]]
    assert [_plain(row) for row in read_labels(Store(str(run)))] == labels
    rollouts = [{"reason": None, "completer": "policy", **row} for row in read["rollouts"]]
    assert [_plain(row) for row in read_rollouts(Store(str(run)))] == rollouts
    assert [_plain(row) for row in mclabel.read_labels(run)] == labels


def test_the_runs_have_labels_of_every_source_and_priors(tmp_path: Path) -> None:
    rows = [row for name in RUNS for row in read_labels(Store(str(unpack(4, name, tmp_path))))]
    sources = {step.source for row in rows for step in row.steps}
    assert {"fixed", "posterior", "first_success", "implied", "outcome"} <= sources
    with_priors = [row for row in rows if row.priors is not None]
    assert len({row.priors for row in with_priors}) > 1
    assert {row.min_gain_per_token for row in with_priors} == {0.001, 0.0001}  # pilot, and after
    assert {row.min_gain_per_token for row in rows if row.priors is None} == {None}


@every_version
@every_run
def test_tables_have_the_columns_of_now(version: int, name: str, tmp_path: Path) -> None:
    run = unpack(version, name, tmp_path)
    for _, table in label_tables(Store(str(run))):
        assert table.schema.equals(LABELS_SCHEMA)
    assert mclabel.load_labels(run, cache_dir=tmp_path).column_names == LABELS_SCHEMA.names
    assert mclabel.load_rollouts(run, cache_dir=tmp_path).column_names == ROLLOUTS_SCHEMA.names


@every_version
@every_run
def test_exports_are_those_that_the_release_made(version: int, name: str, tmp_path: Path) -> None:
    run = unpack(version, name, tmp_path)
    for to, rows in json.loads((run / "read.json").read_text())["exports"].items():
        out = tmp_path / to
        result = CliRunner().invoke(main, ["export", str(run), "--to", to, "-o", str(out)])
        if not rows:
            assert result.exit_code == 2, result.output
            continue
        assert result.exit_code == 0, result.output
        ours = [json.loads(line) for line in (out / "data.jsonl").open()]
        if version == 3 and to == "processbench":  # had the problem's id, which is not unique
            assert len({row.pop("id") for row in ours}) == len(ours)
            for row in rows:
                row.pop("id")
        assert ours == rows


@every_version
@every_run
def test_an_export_to_parquet_has_the_columns_of_now(
    version: int, name: str, tmp_path: Path
) -> None:
    run = unpack(version, name, tmp_path)
    out = tmp_path / "tables"
    result = CliRunner().invoke(main, ["export", str(run), "--to", "parquet", "-o", str(out)])
    assert result.exit_code == 0, result.output
    table = pa.concat_tables(map(pq.read_table, sorted(out.glob("labels-*.parquet"))))
    assert table.schema.equals(LABELS_SCHEMA)
    assert table.num_rows == len(json.loads((run / "read.json").read_text())["labels"])


@every_version
@every_run
def test_the_report_has_the_same_figures(version: int, name: str, tmp_path: Path) -> None:
    run = unpack(version, name, tmp_path)
    theirs = json.loads((run / "read.json").read_text())["report"]
    ours = json.loads(json.dumps(_plain(run_facts(find_runs([str(run)])[0]))))
    if version < 5:
        theirs["sources"] = theirs.pop("rules")
    if "example" in theirs and theirs["example"] is not None:
        theirs["example"]["row"] = _renamed(theirs["example"]["row"])
    assert "quality" in theirs["all"]
    if version == 3:  # took solutions that were chosen by their outcome for draws, too
        theirs["steps"].pop("drawn")
    for key, value in theirs.items():  # figures that later releases added have no counterpart
        assert _shared(ours[key], value) == value, key


@every_version
@every_run
def test_verify_finds_no_fault(version: int, name: str, tmp_path: Path) -> None:
    run = unpack(version, name, tmp_path)
    found = verify(Store(str(run)))
    assert found.is_sound, found.damage
    assert (found.num_without_digest > 0) == (version == 3)
    if name == "scripted":
        (run / "priors" / f"{next(read_labels(Store(str(run)))).priors}.json").unlink()
        assert not verify(Store(str(run))).is_sound


@every_version
def test_merged_shards_are_of_the_schema_of_now(version: int, tmp_path: Path) -> None:
    run = unpack(version, "scripted", tmp_path)
    store = Store(str(run))
    before = list(read_labels(store))
    assert len(store.names("labels")) == 2
    result = CliRunner().invoke(main, ["compact", str(run)])
    assert result.exit_code == 0, result.output
    assert sorted(read_labels(store), key=_order) == sorted(before, key=_order)
    (merged,) = store.names("merged/labels")
    metadata = json.loads(pq.read_schema(run / merged).metadata[METADATA_KEY])
    assert metadata["schema_version"] == SCHEMA_VERSION
    assert verify(store).is_sound


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("verb", ["label", "compact-and-label"])
def test_a_run_begun_by_an_earlier_release_is_not_resumed(
    version: int, verb: str, tmp_path: Path
) -> None:
    run = unpack(version, "balanced", tmp_path)
    if verb != "label":
        assert CliRunner().invoke(main, ["compact", str(run)]).exit_code == 0
    problems = tmp_path / "problems.jsonl"
    rows = [{"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(12)]
    problems.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "job.yaml").write_text("seed: 1\n")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    overrides = [
        *(f"problems.source={problems}", f"out={run}", "policy.engine=scripted"),
        *("estimator.kind=bisect", "estimator.rollouts=4", "ray.address=none"),
    ]
    result = CliRunner().invoke(main, ["label", str(tmp_path / "job.yaml"), *overrides])
    assert result.exit_code == 2, result.output
    said = " ".join(result.output.split())
    assert "was begun by another version of mclabel" in said
    assert "It can be read but not resumed. Choose another out=" in said
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("version", [5, 6])
def test_a_run_begun_with_a_late_schema_is_resumed(version: int, tmp_path: Path) -> None:
    run = unpack(version, "balanced", tmp_path)
    store = Store(str(run))
    before = {row.solution.id: row for row in read_labels(store)}
    lost, kept = store.names("labels")
    store.delete(lost)
    rows = [
        {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i), "level": str(i % 3)}
        for i in range(12)
    ]
    problems = tmp_path / "problems.jsonl"
    problems.write_text("\n".join(map(json.dumps, rows)))
    job = [
        *("label", "/dev/null", "seed=1", f"out={run}", f"problems.source={problems}"),
        *("policy.engine=scripted", "estimator.kind=bisect", "estimator.rollouts=4"),
        *("solutions.balance=1", "keep_rollouts=false", "solutions.per_problem=4"),
        *("block_problems=6", "ray.address=none"),
    ]
    result = CliRunner().invoke(main, job)
    assert result.exit_code == 0, result.output
    assert store.names("labels") == sorted([lost, kept])
    versions = [
        json.loads(pq.read_schema(run / name).metadata[METADATA_KEY])["schema_version"]
        for name in (lost, kept)
    ]
    assert versions == [SCHEMA_VERSION, version]
    after = {row.solution.id: row for row in read_labels(store)}
    assert {row.completers[0].name for row in after.values() if row.completers} == {"policy"}
    assert {name: replace(row, completers=()) for name, row in after.items()} == before


@pytest.mark.parametrize(
    ("column", "value", "fault"),
    [
        ("steps", pa.array([["a"]] * 6), "column steps must be"),
        ("priors", pa.array(["without a price"] * 6), "Index 1 is out of bounds"),
        ("priors", pa.array(["id@much"] * 6), "Failed to parse string: 'much'"),
    ],
)
def test_a_shard_of_schema_3_with_broken_columns_is_named(
    column: str, value: pa.Array, fault: str, tmp_path: Path
) -> None:
    run = unpack(3, "balanced", tmp_path)
    shutil.rmtree(run / "plan")
    path = min((run / "labels").iterdir())
    table = pq.read_table(path)
    value = pa.concat_arrays([value] * (len(table) // len(value) + 1))[: len(table)]
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, value), path)
    with pytest.raises(DamagedFile, match=fault):
        list(read_labels(Store(str(run))))


def _order(row: mclabel.LabeledSolution) -> tuple[str, int]:
    return row.problem.id, row.solution.sample_index


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    """A record of an earlier release by the names of now."""
    if "min_gain_per_token" in row:
        return row
    identity, _, price = (row["priors"] or "").partition("@")
    steps = [
        {("source" if key == "rule" else key): value for key, value in step.items()}
        for step in row["steps"]
    ]
    return {
        **row,
        "problem": {**row["problem"], "answer_is_json": False},
        "steps": steps,
        "priors": identity or None,
        "min_gain_per_token": float(price) if price else None,
    }


def _plain(value: Any) -> Any:
    """JSON values of a record, as `make_fixtures.py` writes them."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return [None if np.isnan(one) else float(one) for one in value]
    return value


def _shared(ours: Any, theirs: Any) -> Any:
    """Our value, less the fields that the earlier release did not have."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {key: _shared(value, theirs[key]) for key, value in ours.items() if key in theirs}
    return ours
