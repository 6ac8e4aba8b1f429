"""Files appear complete, exactly once, and persist; errors name a failing store."""

from __future__ import annotations

import errno
import io
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from mclabel.core.errors import ShardError
from mclabel.run.shards import durable
from mclabel.run.shards.durable import PARTIAL, create_durably, delete_partial_files
from mclabel.run.shards.store import Store


@pytest.fixture(params=["nameless", "partial"])
def write_method(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Create files with O_TMPFILE, or as on a file system without it."""
    if request.param == "partial":
        monkeypatch.setattr(durable, "_open_unnamed", lambda folder: None)
    return str(request.param)


def test_of_many_writers_one_wins_and_its_content_is_whole(
    write_method: str, tmp_path: Path
) -> None:
    contents = [bytes([i]) * 100_000 for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        won = list(pool.map(partial(create_durably, tmp_path, "labels/x.parquet"), contents))
    assert won.count(True) == 1
    assert (tmp_path / "labels/x.parquet").read_bytes() == contents[won.index(True)]
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} == {"x.parquet"}


def test_nothing_has_a_name_before_it_is_on_the_disk(
    write_method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order survives a loss of power: sync the content, link the name, sync the folder."""
    order: list[str] = []
    traced: list[tuple[str, Callable[..., object]]] = [("link", os.link), ("fsync", os.fsync)]
    for name, real in traced:

        def call(
            *args: object, _name: str = name, _real: Callable[..., object] = real, **k: object
        ):  # type: ignore[no-untyped-def]
            order.append(_name)
            return _real(*args, **k)

        monkeypatch.setattr(os, name, call)
    (tmp_path / "labels").mkdir()
    assert create_durably(tmp_path, "labels/x", b"content")
    assert order == ["fsync", "link", "fsync"]
    order.clear()
    assert create_durably(tmp_path, "new/folder/x", b"content")
    assert order == [
        "fsync",
        "fsync",
        "fsync",
        "link",
        "fsync",
    ]  # syncs of the parents of two new folders, then of the file


def test_a_full_disk_leaves_no_name_and_is_said(
    write_method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))

    def full(handle: int, content: bytes) -> None:
        os.write(handle, b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with (
        monkeypatch.context() as patch,
        pytest.raises(ShardError, match=r"labels/a: .*No space left.*run the same command"),
    ):
        patch.setattr(durable, "write_synced", full)
        store.create("labels/a", b"whole")
    assert store.names("") == []
    assert store.create("labels/a", b"whole") and store.read("labels/a") == b"whole"


def test_old_partial_files_are_swept_and_young_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / PARTIAL).mkdir()
    old, young = (tmp_path / PARTIAL / name for name in ("old", "young"))
    old.write_bytes(b"x")
    young.write_bytes(b"x")
    os.utime(old, (time.time() - 3600,) * 2)
    delete_partial_files(tmp_path)
    assert [p.name for p in (tmp_path / PARTIAL).iterdir()] == ["young"]


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ShardError, match="is a file"):
        Store(str(tmp_path / "file"))
    with pytest.raises(ShardError, match="Not a directory"):
        Store(str(tmp_path / "file" / "below"), create=True)
    with pytest.raises(ShardError, match="not a usable store URL"):
        Store("nosuch://bucket")


def test_a_replaced_file_is_never_half_and_its_time_is_the_store_s(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    store.create("drivers/a", b"one")
    before = store.modified_times("drivers")["drivers/a"]
    os.utime(tmp_path / "drivers" / "a", (1e9, 1e9))
    assert store.modified_times("drivers")["drivers/a"] < before
    store.replace("drivers/a", io.BytesIO(b"two"))
    assert store.read("drivers/a") == b"two"
    assert store.modified_times("drivers")["drivers/a"] >= before
    assert not list((tmp_path / PARTIAL).iterdir())
