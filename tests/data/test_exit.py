"""Nothing of a read is left to threads that Python does not know: its exit would abort in them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.compact import compact
from mclabel.run.shards.labels import read_shard
from mclabel.run.shards.plan import read_parts
from mclabel.run.shards.store import Store
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems

NUM_READS = 100
"""Of pyarrow's reads with threads more than one in twenty is late, of any table."""


class Cached(Store):
    """Gives the same bytes again and again."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self.contents: dict[str, bytes | None] = {}

    def read(self, name: str) -> bytes | None:
        if name not in self.contents:
            self.contents[name] = super().read(name)
        return self.contents[name]


def read_own_shard(store: Store) -> None:
    read_shard(store, store.names("labels")[0], "labels")


def read_rollouts_shard(store: Store) -> None:
    read_shard(store, store.names("rollouts")[0], "rollouts")


def read_merged(store: Store) -> None:
    assert read_catalog(store).blocks


def read_plan(store: Store) -> None:
    assert list(read_parts(store))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A run, and one whose shards are merged."""
    folder = tmp_path_factory.mktemp("runs")
    outs = folder / "plain", folder / "merged"
    for out in outs:
        source = write_problems(folder, 8)
        run_label_job(scripted_overrides(source, out, "ray.address=none"))
    compact(Store(str(outs[1])), rows=1000)
    return outs


@pytest.mark.parametrize(
    ("read", "is_merged"),
    [
        (read_own_shard, False),
        (read_rollouts_shard, False),
        (read_plan, False),
        (read_merged, True),
    ],
)
def test_no_thread_holds_the_bytes_of_a_file_that_was_read(
    runs: tuple[Path, Path], read: Callable[[Store], None], is_merged: bool
) -> None:
    store = Cached(str(runs[is_merged]))
    read(store)
    names = [name for name, content in store.contents.items() if content is not None]
    assert names
    store.contents = {name: bytes(bytearray(store.contents[name] or b"")) for name in names}
    held = {name: sys.getrefcount(store.contents[name]) for name in names}
    for _ in range(NUM_READS):
        read(store)
        assert {name: sys.getrefcount(store.contents[name]) for name in names} == held
