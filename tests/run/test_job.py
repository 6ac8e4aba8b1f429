"""Jobs: commit, resume, refusal, and that labels rest on their own rollouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import mclabel
from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.job import semantic_config
from mclabel.run.shards.labels import (
    commit_block,
    committed_blocks,
    label_tables,
    read_labels,
    read_rollouts,
)
from mclabel.run.shards.schema import LABELS_SCHEMA, SCHEMA_VERSION
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.exactness import check_exact


def run(out: Path, *overrides: str) -> JobReport:
    problems = out.parent / "problems.jsonl"
    if not problems.exists():
        rows = [
            {"id": f"p{i}", "problem": f"P{i} [answer {i}]", "answer": str(i)} for i in range(20)
        ]
        problems.write_text("\n".join(map(json.dumps, rows)))
    base = [f"out={out}", "policy.engine=scripted", "ray.address=none", "block_problems=4"]
    base += [f"problems.source={problems}", "estimator.rollouts=4"]
    return jobs.label(load_config(LabelConfig, None, [*base, *overrides]), lambda state: None)


def test_a_job_labels_everything_and_a_rerun_finds_it_done(tmp_path: Path) -> None:
    report = run(tmp_path / "out")
    assert (report.num_blocks, report.num_items, report.counts["num_solutions"]) == (5, 20, 80)
    check_exact(tmp_path / "out")
    again = run(tmp_path / "out")
    assert (again.num_blocks_resumed, again.num_items) == (5, 0)


def test_of_two_attempts_the_first_wins_whole(tmp_path: Path) -> None:
    run(tmp_path / "out")
    store = Store(str(tmp_path / "out"))
    rows, rollouts = list(read_labels(store)), list(read_rollouts(store))
    block = sorted(committed_blocks(store))[0]
    before = store.read(f"labels/{block}.parquet")
    assert not commit_block(store, block, "late", rows, rollouts, {})
    assert store.read(f"labels/{block}.parquet") == before
    check_exact(tmp_path / "out")


def test_another_semantic_configuration_is_refused_and_named(tmp_path: Path) -> None:
    run(tmp_path / "out")
    files = sorted(p for p in (tmp_path / "out").rglob("*"))
    with pytest.raises(ShardError, match=r"estimator.rollouts: 4 there, 5 here") as caught:
        run(tmp_path / "out", "estimator.rollouts=5", "policy.temperature=1.0")
    assert "policy.temperature: 0.8 there, 1.0 here" in str(caught.value)
    assert files == sorted(p for p in (tmp_path / "out").rglob("*"))


def test_shards_hold_the_documented_columns_and_no_secret(tmp_path: Path) -> None:
    run(tmp_path / "out")
    data = mclabel.load_labels(tmp_path / "out", cache_dir=tmp_path / "c")
    assert data.num_rows == 80
    assert data.column_names == LABELS_SCHEMA.names
    documented = (Path(__file__).parents[2] / "docs" / "formats.md").read_text()
    step_fields = [f.name for f in LABELS_SCHEMA.field("steps").type.value_type]
    for name in [*LABELS_SCHEMA.names, *step_fields]:
        assert f"`{name}`" in documented
    metadata, _ = next(label_tables(Store(str(tmp_path / "out"))))
    assert metadata["schema_version"] == SCHEMA_VERSION
    assert metadata["config"]["estimator"]["rollouts"] == 4
    assert "torch" in metadata["versions"]
    assert str(Path.home()) not in json.dumps({k: v for k, v in metadata.items() if k != "config"})


def test_rollouts_can_be_left_out(tmp_path: Path) -> None:
    run(tmp_path / "out", "keep_rollouts=false")
    assert not (tmp_path / "out" / "rollouts").exists()
    assert list(read_rollouts(Store(str(tmp_path / "out")))) == []


def test_a_local_model_is_known_by_its_weights(tmp_path: Path) -> None:
    from mclabel.domains.arith import bundled_model

    moved = tmp_path / "elsewhere"
    shutil.copytree(bundled_model("policy"), moved)

    def semantic(model: object) -> object:
        config = load_config(LabelConfig, None, ["out=x", f"policy.model={model}"])
        return semantic_config(config)

    assert semantic("arith:policy") == semantic(moved)
    weights = moved / "model.safetensors"
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    assert semantic("arith:policy") != semantic(moved)
