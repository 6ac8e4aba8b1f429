"""Random damage to a run's files: no reader gives other data in silence, none fails raw."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mclabel import jobs
from mclabel.cli import main
from mclabel.core.config.load import load_config
from mclabel.core.errors import DamagedFile, ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.compact import compact
from mclabel.run.shards.digest import check_parquet, parquet_with_digest
from mclabel.run.shards.labels import committed_blocks, read_labels, read_rollouts
from mclabel.run.shards.schema import LABELS_SCHEMA
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from mclabel.run.verify.run import verify
from tests.support.damaged import copied, damages, try_damages, write_run
from tests.support.exactness import check_exact
from tests.support.scripted_jobs import scripted_overrides, write_problems


@pytest.fixture(scope="module", params=[False, True], ids=["small shards", "merged"])
def out(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), merged=request.param)


@pytest.mark.slow
def test_no_bit_flip_or_truncation_is_silent_or_raw(out: Path) -> None:
    """Some of each; `test_lost_and_swapped` damages every file of runs of every kind."""
    found = try_damages(out, 20, seed=20)
    print(found)
    assert found.silent == [] and found.unverified == []
    assert found.named + found.only_verify > 18


@pytest.mark.parametrize(
    "verb",
    [
        ["show", "RUN"],
        ["labels", "RUN"],
        ["export", "RUN", "--to", "trl", "-o", "OUT"],
        ["export", "RUN", "--to", "parquet", "-o", "OUT"],
        ["regrade", "RUN", "-o", "OUT"],
        ["compact", "RUN"],
        ["report", "RUN", "-o", "OUT.html"],
        ["verify", "RUN"],
        ["verify", "RUN", "--json"],
    ],
    ids=lambda verb: " ".join(verb[:1] + verb[2:4]),
)
def test_every_verb_ends_with_a_message(out: Path, verb: list[str], tmp_path: Path) -> None:
    codes = set()
    for number, damage in enumerate(damages(out, 3, seed=7)):
        run = copied(out, tmp_path / str(number))
        (run / damage.name).write_bytes(damage.content)
        places = {"RUN": str(run), "OUT": f"{run}-out", "OUT.html": f"{run}.html"}
        result = CliRunner().invoke(main, [places.get(word, word) for word in verb])
        assert result.exception is None or isinstance(result.exception, SystemExit), damage
        if result.exit_code == 2:
            assert damage.name in " ".join(result.output.split()), damage
        codes.add(result.exit_code)
    assert codes <= {0, 1, 2} and codes != {0}


def label(folder: Path, *more: str) -> JobReport:
    changes = scripted_overrides(folder / "problems.jsonl", folder / "run", "ray.address=none")
    return jobs.label(load_config(LabelConfig, None, [*changes, *more]), lambda state: None)


def test_a_truncated_shard_stops_a_resumed_job_and_is_labelled_again_once_deleted(
    tmp_path: Path,
) -> None:
    write_problems(tmp_path, 12)
    label(tmp_path)
    run = tmp_path / "run"
    shards = sorted((run / "labels").iterdir())
    for shard, end in zip(shards, (5000, 0, -1), strict=True):
        whole = shard.read_bytes()
        shard.write_bytes(whole[:end])
        with pytest.raises(ShardError, match=f"labels/{shard.name}: damaged: it is cut off. Del"):
            label(tmp_path)
        shard.unlink()
        assert label(tmp_path).num_blocks_resumed == 2
        check_exact(run, 12)
    for shard in shards:
        shard.write_bytes(b"")
    with pytest.raises(ShardError, match=r"The same holds for 2 others: labels/.*, labels/"):
        label(tmp_path)


def test_the_blocks_of_a_merged_shard_are_labelled_again_once_it_is_deleted(
    tmp_path: Path,
) -> None:
    write_problems(tmp_path, 24)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    assert compact(store, rows=33).num_after == 2
    damaged, *_ = store.names("merged/labels")
    path = tmp_path / "run" / damaged
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DamagedFile, match=f"{damaged}: damaged: it is cut off"):
        label(tmp_path)
    path.unlink()
    with pytest.raises(DamagedFile, match=f"{damaged}: missing, though 3 blocks were merged"):
        list(read_labels(store))
    kept = set(read_catalog(store, must_be_whole=False).blocks)
    assert len(list(read_labels(store, kept))) == 48
    assert len(committed_blocks(store, must_be_whole=False)) == 3
    assert label(tmp_path).num_blocks_resumed == 3
    assert compact(store, rows=1000).num_after == 1
    check_exact(tmp_path / "run", 24)
    assert label(tmp_path).num_blocks_resumed == 6


def test_rollouts_must_be_those_that_the_labels_name(tmp_path: Path) -> None:
    write_problems(tmp_path, 8)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    one, other = store.names("rollouts")
    content = store.read(other) or b""
    (tmp_path / "run" / one).write_bytes(content)
    with pytest.raises(DamagedFile, match=f"{one}: its rollouts are not the ones that"):
        list(read_rollouts(store))


def test_a_shard_written_again_by_another_program_is_refused(
    tmp_path: Path,
) -> None:
    write_problems(tmp_path, 4)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    (name,) = store.names("labels")
    path = tmp_path / "run" / name
    table = pq.read_table(path)
    pq.write_table(table, path)
    with pytest.raises(DamagedFile, match="rewritten by another program: it has no digest"):
        list(read_labels(store))


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.drop_columns(["problem_id"]),
        lambda table: table.drop_columns(["consensus"]),
        lambda table: table.set_column(0, "problem_id", pa.array([1] * len(table))),
        lambda table: table.set_column(
            3, LABELS_SCHEMA.field("meta"), pa.array(["no JSON"] * len(table))
        ),
        lambda table: table.set_column(
            12, LABELS_SCHEMA.field("outcome"), pa.array(["odd"] * len(table))
        ),
    ],
)
def test_a_shard_with_broken_columns_is_named(
    tmp_path: Path, change: Callable[[pa.Table], pa.Table]
) -> None:
    write_problems(tmp_path, 4)
    label(tmp_path)
    store = Store(str(tmp_path / "run"))
    (name,) = store.names("labels")
    table = pq.read_table(tmp_path / "run" / name)
    broken = change(table).replace_schema_metadata(table.schema.metadata)
    (tmp_path / "run" / name).write_bytes(parquet_with_digest(broken))
    with pytest.raises(DamagedFile, match=f"{name}: damaged, or not a labels shard"):
        list(read_labels(store))


@pytest.mark.parametrize("version", [0, 8, None])
def test_a_shard_of_another_schema_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int | None
) -> None:
    write_problems(tmp_path, 4)
    monkeypatch.setattr("mclabel.run.shards.shard.SCHEMA_VERSION", version)
    label(tmp_path)
    monkeypatch.undo()
    store = Store(str(tmp_path / "run"))
    words = f"schema version {version}; this mclabel reads 'labels', version 1. Make the run again"
    with pytest.raises(DamagedFile, match=words):
        list(read_labels(store))
    (found,) = verify(store).damage
    assert re.search(words, str(found))


def test_every_single_bit_of_a_small_file_is_covered() -> None:
    content = parquet_with_digest(pa.table({"a": ["x"]}), compression="none")
    assert check_parquet(content) == "sound"
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == [{"a": "x"}]
    seen = 0
    for bit in range(8 * len(content)):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        seen += check_parquet(bytes(changed)) != "sound"
    assert seen == 8 * len(content)


def test_a_text_that_looks_like_a_digest_is_not_taken_for_it() -> None:
    false = "mclabel.digest\x18\x47sha256:" + "0" * 64 + "\x00"
    content = parquet_with_digest(pa.table({"a": [false]}), compression="none")
    assert check_parquet(content) == "sound"
    assert check_parquet(content.replace(b"\x00PAR1", b"\x00PAR2")) == "damaged"
    assert pq.read_table(pa.BufferReader(content)).to_pylist() == [{"a": false}]


def options(out: Path) -> tuple[str, ...]:
    """What `write_run` labelled."""
    source = f"problems.source={out.parent / 'problems.jsonl'}"
    return (source, "estimator.kind=posterior", "solutions.per_problem=2")


def test_a_damaged_priors_file_stops_the_job_by_name(out: Path, tmp_path: Path) -> None:
    run = copied(out, tmp_path / "run")
    (priors,) = (run / "priors").iterdir()
    priors.write_bytes(priors.read_bytes().replace(b"0.", b"1.", 1))
    more = options(out)
    with pytest.raises(DamagedFile, match=f"priors/{priors.name}: damaged.*Delete it"):
        label(tmp_path, *more)
    priors.unlink()
    assert label(tmp_path, *more).num_blocks_resumed == 2


def test_damage_to_a_journal_costs_what_it_held(out: Path, tmp_path: Path) -> None:
    run = copied(out, tmp_path / "run")
    (journal,) = (run / "journals").rglob("*.gz")
    journal.write_bytes(journal.read_bytes()[:-9])
    report = label(tmp_path, *options(out))
    assert report.num_blocks_resumed == 2 and len(list(read_labels(Store(str(run))))) == 22
    assert not (run / "journals").exists()
    assert CliRunner().invoke(main, ["verify", str(run)]).exit_code == 0
