"""Jobs: commit, resume, refusal, and that labels rest on their own rollouts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import mclabel
from mclabel import jobs
from mclabel.core.config.load import load_config
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
from tests.support.scripted_jobs import scripted_overrides, write_problems


def run(out: Path) -> JobReport:
    changes = scripted_overrides(write_problems(out.parent, 20), out, "ray.address=none")
    return jobs.label(load_config(LabelConfig, None, changes), lambda state: None)


def test_of_two_attempts_the_first_wins_whole(tmp_path: Path) -> None:
    run(tmp_path / "out")
    store = Store(str(tmp_path / "out"))
    rows, rollouts = list(read_labels(store)), list(read_rollouts(store))
    block = sorted(committed_blocks(store))[0]
    before = store.read(f"labels/{block}.parquet")
    assert not commit_block(store, block, "late", rows, rollouts, {})
    assert store.read(f"labels/{block}.parquet") == before
    check_exact(tmp_path / "out")


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
