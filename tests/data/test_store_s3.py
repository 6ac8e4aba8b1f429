"""The store on S3, with a server that fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from mclabel import pipelines
from mclabel.config import LabelConfig, load_config
from mclabel.data.shards import store as store_module
from mclabel.data.shards.compact import compact
from mclabel.data.shards.labels import commit_block, read_labels, read_rollouts
from mclabel.data.shards.store import Store
from mclabel.errors import ShardError
from tests.support.exactness import check_exact_store
from tests.support.flaky_s3 import FlakyS3, flaky_s3, s3_environment
from tests.support.scripted_jobs import scripted_overrides, write_problems


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyS3]:
    with flaky_s3("bucket") as proxy:
        yield proxy


@pytest.fixture
def s3(server: FlakyS3, monkeypatch: pytest.MonkeyPatch) -> FlakyS3:
    for name, value in s3_environment(server).items():
        monkeypatch.setenv(name, value)
    server.fault = lambda method, path: "ok"
    return server


def test_create_read_list_delete(s3: FlakyS3) -> None:
    store = Store("s3://bucket/plain")
    assert store.create("labels/a", b"one") and not store.create("labels/a", b"two")
    assert store.read("labels/a") == b"one" and store.read("labels/none") is None
    for i in range(1100):  # more than a page
        store.create(f"many/{i:04d}", b"")
    assert store.names("many") == [f"many/{i:04d}" for i in range(1100)]
    store.delete("labels/a")
    store.delete("labels/a")
    assert store.names("labels") == []


def test_failures_are_tried_again(s3: FlakyS3) -> None:
    rng = random.Random(0)
    faults = ["503", "drop", "ok"]
    s3.fault = lambda method, path: rng.choice(faults)  # type: ignore[assignment, return-value]
    store = Store("s3://bucket/flaky")
    for i in range(5):
        assert store.create(f"labels/{i}", b"x" * i)
    assert [store.read(f"labels/{i}") for i in range(5)] == [b"x" * i for i in range(5)]


def test_a_commit_whose_answer_was_lost_is_known_as_its_own(s3: FlakyS3, tmp_path: Path) -> None:
    source = write_problems(tmp_path, 4)
    overrides = scripted_overrides(source, tmp_path / "run", "ray.address=none")
    pipelines.label(load_config(LabelConfig, None, overrides), lambda state: None)
    local = Store(str(tmp_path / "run"))
    rows, rollouts = list(read_labels(local)), list(read_rollouts(local))
    lost: list[str] = []

    def fault(method: str, path: str) -> str:
        if method == "PUT" and path not in lost:
            lost.append(path)
            return "lose answer"
        return "ok"

    s3.fault = fault  # type: ignore[assignment]
    store = Store("s3://bucket/lost")
    assert commit_block(store, "b", "mine", rows, rollouts, {})
    assert len(lost) == 2
    assert list(read_labels(store)) == rows and list(read_rollouts(store)) == rollouts
    assert not commit_block(store, "b", "late", rows, rollouts, {})
    assert len(store.names("rollouts")) == 1


def test_a_job_on_a_failing_store_is_exact_and_merges(s3: FlakyS3, tmp_path: Path) -> None:
    rng = random.Random(1)
    s3.fault = lambda method, path: rng.choice(  # type: ignore[assignment, return-value]
        ["ok", "ok", "ok", "503", "drop", "lose answer" if method == "PUT" else "drop"]
    )
    source = write_problems(tmp_path, 12)
    overrides = scripted_overrides(source, Path("unused"), "ray.address=none")
    overrides = [o for o in overrides if not o.startswith("out=")] + ["out=s3://bucket/job"]
    for _ in range(2):
        pipelines.label(load_config(LabelConfig, None, overrides), lambda state: None)
    s3.fault = lambda method, path: "ok"
    store = Store("s3://bucket/job")
    check_exact_store(store, 12)
    assert compact(store, rows=1000).num_after == 1
    check_exact_store(store, 12)


def test_a_store_that_is_gone_is_a_clear_stop(s3: FlakyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module._RETRIES, "max_retries", 2)
    store = Store("s3://bucket/gone")
    store.create("labels/a", b"one")
    s3.fault = lambda method, path: "503"
    with pytest.raises(ShardError, match=r"s3://bucket/gone/labels/b: .*503.*run the same command"):
        store.create("labels/b", b"two")
    s3.fault = lambda method, path: "ok"
    assert store.names("labels") == ["labels/a"]
