"""Which labels shard stands for which block.

A block is committed as `labels/BLOCK.parquet`. Merging small shards (`compact`) writes larger ones
and then creates `compacted/NUMBER.parquet`, which says where the merged blocks lie from then on;
the small shards are deleted afterwards. What a later number says holds. The labels are listed
before the numbers, so a block whose small shard is already gone is found in a number.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.data.packed import PackedNames
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


class Blocks(Mapping[str, Place]):
    """Where each block lies, by its id. Those with a shard of their own, the most, are packed."""

    def __init__(self, alone: Iterable[str], merged: Mapping[str, Place]) -> None:
        """Args:
        alone: blocks with a shard of their own.
        merged: where others lie.
        """
        self._alone, self._merged = PackedNames(alone), merged

    def __len__(self) -> int:
        return len(self._alone) + len(self._merged)

    def __iter__(self) -> Iterator[str]:
        yield from self._alone
        yield from self._merged

    def __contains__(self, block: object) -> bool:
        return block in self._merged or block in self._alone

    def __getitem__(self, block: str) -> Place:
        if (place := self._merged.get(block)) is not None:
            return place
        if block in self._alone:
            return Place(_own_shard(block))
        raise KeyError(block)


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The committed blocks of a run."""

    blocks: Blocks
    number: int
    """Of the last merge; 0 before the first."""
    merged_away: tuple[str, ...] = ()
    """Small shards that a merge has replaced, and that are still there."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Labels shards, each once, in a fixed order."""
        return tuple(sorted({place.file for place in self.blocks.values()}))

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
    there = PackedNames(
        name.removeprefix("labels/").removesuffix(".parquet")
        for name in store.listed("labels")
        if name.endswith(".parquet")
    )
    merged: dict[str, Place] = {}
    number = 0
    for name in store.names(FOLDER):
        number = int(name.removeprefix(f"{FOLDER}/").removesuffix(".parquet"))
        for row in _rows(store, name):
            merged[row["block"]] = Place(row["file"], row["offset"], row["num_rows"])
    return Catalog(
        blocks=Blocks((block for block in there if block not in merged), merged),
        number=number,
        merged_away=tuple(_own_shard(block) for block in there if block in merged),
    )


def _own_shard(block: str) -> str:
    return f"labels/{block}.parquet"


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
