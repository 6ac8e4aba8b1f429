"""A run's manifest that is lost, or is another run's: it is told, refused to others, and mended."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.compact import compact
from mclabel.run.shards.digest import read_object, with_digest
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import scripted_overrides, write_problems

OTHERS = ("estimator.kind=bisect", "seed=7", "policy.temperature=0.5")


def label(folder: Path, *more: str, out: str = "run", blocks: int | None = None) -> JobReport:
    source = write_problems(folder, 12)
    changes = scripted_overrides(source, folder / out, "ray.address=none", *more)
    return jobs.label(
        load_config(LabelConfig, None, changes),
        lambda state: None,
        choose=None if blocks is None else lambda job: [n for n, _ in job.sizes()][:blocks],
    )


def manifest(run: Path) -> dict[str, object]:
    content = json.loads((run / "run.json").read_text())
    return {name: content[name] for name in ("format", "id", "identity", "config")}


def remove(run: Path) -> None:
    (run / "run.json").unlink()


def replace(run: Path) -> None:
    label(run.parent, *OTHERS, out="other", blocks=0)
    shutil.copy(run.parent / "other" / "run.json", run / "run.json")


@pytest.mark.parametrize(("spoil", "blocks"), [(remove, None), (remove, 0), (replace, None)])
def test_a_run_whose_manifest_is_not_its_own_is_refused_to_others(
    tmp_path: Path, spoil: Callable[[Path], None], blocks: int | None
) -> None:
    label(tmp_path, blocks=blocks)
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in run.rglob("*.parquet")}
    spoil(run)
    there = (run / "run.json").exists()
    with pytest.raises(ShardError, match="and shards there are of another configuration") as error:
        label(tmp_path, *OTHERS)
    assert ("--restore-manifest" in str(error.value)) == (blocks is None)
    if blocks is None:
        assert "  seed: 0 there, 7 here" in str(error.value)
        assert re.search(r"  policy.temperature: [\d.]+ there, 0.5 here", str(error.value))
    found = verify(Store(str(run)))
    fault, *_ = [one for one in found.damage if one.name == "run.json"]
    missing = "shards carry" if blocks is None else "the run has a plan"
    words = "of another configuration than" if there else f"missing, though {missing}"
    assert words in fault.fault
    assert ("--restore-manifest" in fault.remedy) == (blocks is None)
    assert {path: path.read_bytes() for path in run.rglob("*.parquet")} == before
    assert (run / "run.json").exists() == there


def test_the_job_that_began_a_run_writes_its_manifest_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    label(tmp_path)
    run = tmp_path / "run"
    before = manifest(run)
    remove(run)
    assert label(tmp_path).num_blocks_resumed == 3
    assert "run.json was missing. It is written again" in caplog.text
    assert manifest(run) == before
    assert verify(Store(str(run))).is_sound


@pytest.mark.parametrize(("spoil", "merged"), [(remove, False), (replace, True)])
def test_verify_writes_a_manifest_again_from_the_shards(
    tmp_path: Path, spoil: Callable[[Path], None], merged: bool
) -> None:
    label(tmp_path)
    run = tmp_path / "run"
    before, rows = manifest(run), list(read_labels(Store(str(run))))
    if merged:
        compact(Store(str(run)), rows=1000)
    spoil(run)
    assert CliRunner().invoke(main, ["verify", str(run)]).exit_code == 1
    result = CliRunner().invoke(main, ["verify", str(run), "--restore-manifest"])
    assert result.exit_code == 0, result.output
    assert manifest(run) == before
    assert label(tmp_path).num_blocks_resumed == 3
    assert sorted(map(str, read_labels(Store(str(run))))) == sorted(map(str, rows))


def test_a_manifest_of_another_format_is_refused(tmp_path: Path) -> None:
    label(tmp_path)
    path = tmp_path / "run" / "run.json"
    content, _ = read_object(path.read_bytes())
    before = list((tmp_path / "run").rglob("*"))
    for of_then in ({**content, "format": 3}, with_digest({**content, "format": 2})):
        path.write_text(json.dumps(of_then))
        with pytest.raises(ShardError) as error:
            label(tmp_path)
        words = f"format {of_then['format']}; this mclabel reads format 1. Make the output again"
        assert words in str(error.value)
        assert words.startswith(verify(Store(str(path.parent))).damage[0].fault)
    assert list((tmp_path / "run").rglob("*")) == before


def test_shards_of_two_configurations_make_no_manifest(tmp_path: Path) -> None:
    label(tmp_path)
    label(tmp_path, *OTHERS, out="other")
    run = tmp_path / "run"
    for shard in (tmp_path / "other" / "labels").iterdir():
        shutil.copy(shard, run / "labels" / shard.name)
    whole = (run / "run.json").read_bytes()
    result = CliRunner().invoke(main, ["verify", str(run), "--restore-manifest"])
    assert result.exit_code == 2
    assert "its shards are of 2 configurations" in " ".join(result.output.split())
    assert (run / "run.json").read_bytes() == whole
