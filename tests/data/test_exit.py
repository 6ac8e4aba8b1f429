"""A read leaves no work to threads that Python does not know, which would abort at its exit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.plan import read_plan_parts
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

NUM_READS = 100
"""Number of reads. With pyarrow's threads, more than 1 in 20 reads of any table ends too late."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    source, out = write_problems(folder, 8), folder / "labels"
    run_label_job(scripted_overrides(source, out, "ray.address=none"))
    return out


@pytest.mark.parametrize(
    "read",
    [
        lambda store: read_shard(store, store.names("labels")[0], "labels"),
        lambda store: read_shard(store, store.names("rollouts")[0], "rollouts"),
        lambda store: list(read_plan_parts(store)),
        read_catalog,
    ],
)
def test_no_thread_holds_the_bytes_of_a_file_that_was_read(
    run: Path, read: Callable[[Store], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store returns the same bytes object for each read of a name."""
    store, contents = Store(str(run)), dict[str, bytes | None]()
    monkeypatch.setattr(
        store, "read", lambda name: contents.setdefault(name, Store.read(store, name))
    )
    read(store)
    names = [name for name, content in contents.items() if content is not None]
    assert names
    contents.update({name: bytes(bytearray(contents[name] or b"")) for name in names})
    held = {name: sys.getrefcount(contents[name]) for name in names}
    for _ in range(NUM_READS):
        read(store)
        assert {name: sys.getrefcount(contents[name]) for name in names} == held
