"""The store on S3, tested with a server that fails."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from mclabel.core.errors import ShardError
from mclabel.run.shards import store as store_module
from mclabel.run.shards.labels import commit_block, read_labels, read_rollouts
from mclabel.run.shards.store import Store
from tests.support.flaky_s3 import Fault, FlakyS3, flaky_s3, retry_soon, s3_environment
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

PAGE = 20
"""Number of names per response of this server; S3 itself returns 1,000."""


@pytest.fixture(scope="module")
def server() -> Iterator[FlakyS3]:
    with pytest.MonkeyPatch.context() as patch, flaky_s3("bucket") as proxy:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", str(PAGE))
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
    many = [f"many/{i:04d}" for i in range(2 * PAGE + 1)]
    for name in many:
        store.create(name, b"")
    before = s3.num_requests
    assert store.names("many") == many
    assert s3.num_requests - before >= 3, "it was listed in pages"
    store.delete("labels/a")
    store.delete("labels/a")
    assert store.names("labels") == []


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    retry_soon(monkeypatch)


@pytest.mark.usefixtures("soon")
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
    run_label_job(scripted_overrides(source, tmp_path / "run", "ray.address=none"))
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


def test_a_store_that_is_gone_is_a_clear_stop(s3: FlakyS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(store_module._RETRIES, "max_retries", 2)
    store = Store("s3://bucket/gone")
    store.create("labels/a", b"one")
    s3.fault = lambda method, path: "503"
    with pytest.raises(ShardError, match=r"s3://bucket/gone/labels/b: .*503.*run the same command"):
        store.create("labels/b", b"two")
    s3.fault = lambda method, path: "ok"
    assert store.names("labels") == ["labels/a"]


@pytest.fixture
def unreached_s3(s3: FlakyS3, monkeypatch: pytest.MonkeyPatch) -> FlakyS3:
    """Return a server that this process has not reached yet, with a short retry timeout."""
    monkeypatch.setattr(store_module, "_answered", set())
    monkeypatch.setitem(store_module._FIRST_RETRIES, "retry_timeout", timedelta(seconds=1))
    return s3


@pytest.mark.parametrize("fault", ["drop", "503"])
def test_a_store_that_never_answered_fails_at_first_contact(
    unreached_s3: FlakyS3, fault: Fault
) -> None:
    unreached_s3.fault = lambda method, path: fault
    with pytest.raises(ShardError) as caught:
        Store("s3://bucket/never").names("labels")
    message = str(caught.value)
    assert message.startswith("s3://bucket/never: the store cannot be reached")
    for part in (
        f"at {unreached_s3.url} ",
        "Nothing was written",
        "AWS_ENDPOINT_URL",
        "AWS_ACCESS_KEY",
    ):
        assert part in message
    assert "Committed blocks" not in message
    assert "retry_timeout: 1s" in message  # the timeout of the failed request


def test_a_bucket_is_asked_once_a_process_and_an_answer_of_any_kind_will_do(
    unreached_s3: FlakyS3,
) -> None:
    def cost(store: Store) -> int:
        before = unreached_s3.num_requests
        assert store.read("labels/none") is None
        return unreached_s3.num_requests - before

    first = Store("s3://bucket/first")
    assert [cost(first), cost(first), cost(Store("s3://bucket/second"))] == [2, 1, 1]


def test_who_follows_a_process_that_reached_the_store_tries_on(unreached_s3: FlakyS3) -> None:
    unreached_s3.fault = lambda method, path: "503" if method == "HEAD" else "ok"
    assert Store("s3://bucket/worker", was_reached=True).read("labels/none") is None
    unreached_s3.fault = lambda method, path: "503"
    with pytest.raises(ShardError, match=r"retry_timeout: 1s.*Committed blocks are safe"):
        Store("s3://bucket/worker", was_reached=True, retry_s=1).read("labels/none")
