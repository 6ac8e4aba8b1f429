"""Which labels shard stands for which block.

A block is committed as `labels/BLOCK.parquet`. Merging small shards (`compact`) writes larger ones
and then creates `compacted/NUMBER.parquet`, which says where the merged blocks lie from then on;
the small shards are deleted afterwards. What a later number says holds. The labels are listed
before the numbers, so a block whose small shard is already gone is found in a number.
"""

from __future__ import annotations

import io
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.data.store import Store
from mclabel.errors import ShardError

FOLDER = "compacted"
SCHEMA = pa.schema(
    [
        pa.field("block", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("num_rows", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a block's labels lie."""

    file: str
    offset: int = 0
    num_rows: int | None = None
    """Rows of the file that are the block's; None is the whole file."""

    @property
    def is_merged(self) -> bool:
        return self.num_rows is not None


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The committed blocks of a run."""

    blocks: dict[str, Place]
    number: int
    """Of the last merge; 0 before the first."""
    merged_away: tuple[str, ...] = ()
    """Small shards that a merge has replaced, and that are still there."""
    files: tuple[str, ...] = field(init=False)
    """Labels shards, each once, in a fixed order."""

    def __post_init__(self) -> None:
        files = {place.file for place in self.blocks.values()}
        object.__setattr__(self, "files", tuple(sorted(files)))

    def blocks_of(self, file: str) -> list[str]:
        """The blocks in a shard, in its order."""
        found = [(place.offset, name) for name, place in self.blocks.items() if place.file == file]
        return [name for _, name in sorted(found)]

    def by_file(self) -> dict[str, list[str]]:
        """The same of all shards."""
        grouped: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for name, place in self.blocks.items():
            grouped[place.file].append((place.offset, name))
        return {file: [name for _, name in sorted(found)] for file, found in grouped.items()}


def read_catalog(store: Store) -> Catalog:
    """What is committed now."""
    names = [name for name in store.names("labels") if name.endswith(".parquet")]
    blocks = {name.removeprefix("labels/").removesuffix(".parquet"): Place(name) for name in names}
    merged_away = []
    number = 0
    for name in store.names(FOLDER):
        number = int(name.removeprefix(f"{FOLDER}/").removesuffix(".parquet"))
        for row in _rows(store, name):
            block = row["block"]
            before = blocks.get(block)
            if before is not None and not before.is_merged:
                merged_away.append(before.file)
            blocks[block] = Place(row["file"], row["offset"], row["num_rows"])
    return Catalog(blocks=blocks, number=number, merged_away=tuple(merged_away))


def commit_merge(store: Store, number: int, places: dict[str, Place]) -> bool:
    """Say where merged blocks lie from now on; False if another merge has taken the number."""
    rows = [
        {"block": block, "file": place.file, "offset": place.offset, "num_rows": place.num_rows}
        for block, place in places.items()
    ]
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), sink, compression="zstd")
    return store.create(f"{FOLDER}/{number:06d}.parquet", sink.getvalue())


def _rows(store: Store, name: str) -> list[dict[str, Any]]:
    try:
        return pq.read_table(io.BytesIO(store.read(name) or b"")).to_pylist()  # type: ignore[no-any-return]
    except pa.ArrowException as error:
        raise ShardError(f"{store.location}/{name}: torn or no Parquet file ({error})") from error
