"""Locates the labels of every committed block, in shards of their own or in merged shards.

A block is committed as `labels/BLOCK.parquet`. A merge (`compact`) creates a catalog with the new
places of its blocks, `compacted/NUMBER.parquet`, then deletes the small shards; later numbers
supersede earlier ones. Where the run has a plan, only its blocks and current problems count.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile
from mclabel.run.shards.digest import SMALLEST, parquet_with_digest
from mclabel.run.shards.finished import check_whole, read_finished
from mclabel.run.shards.opinions import holds_opinions
from mclabel.run.shards.plan import PackedNames, planned_blocks
from mclabel.run.shards.shard import read_stamped
from mclabel.run.shards.store import Store, damaged

FOLDER, MERGED = "compacted", "merged"
_NUMBER_KEY = b"mclabel.number"
"""Key of a catalog's metadata that says which one it is: a later one supersedes earlier ones."""
_NUMBER = re.compile(rf"{FOLDER}/(\d+)\.parquet")
SCHEMA = pa.schema(
    [
        pa.field("block", pa.string(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("num_rows", pa.int64(), nullable=False),
    ]
)


WITHOUT_ROWS = ("dropped", "set_aside")
"""Keys of a shard's metadata that list problems without labels, by id."""


@dataclass(frozen=True, slots=True)
class Place:
    """The file and rows that hold a block's labels."""

    file: str
    offset: int = 0
    num_rows: int | None = None
    """Rows of the file that are the block's; None is the whole file."""

    @property
    def is_merged(self) -> bool:
        """Return whether the file holds other blocks, too."""
        return self.num_rows is not None


class Blocks(Mapping[str, Place]):
    """Place of each block, by its id. Blocks with a shard of their own, the most, are packed."""

    def __init__(self, alone: Iterable[str], merged: Mapping[str, Place]) -> None:
        """Hold the places of blocks.

        Args:
            alone: blocks with a shard of their own.
            merged: places of the other blocks.
        """
        self._alone, self._merged = PackedNames(alone), merged

    def own(self, file: str) -> bool:
        """Return whether a file is the shard of one of the blocks."""
        return file.removeprefix("labels/").removesuffix(".parquet") in self._alone

    def files(self) -> Iterator[str]:
        """Yield the labels shards, each once."""
        yield from map(_own_shard, self._alone)
        yield from {place.file for place in self._merged.values()}

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
    """Number of the last merge; 0 before the first."""
    merged_away: tuple[str, ...] = ()
    """Small shards that a merge has replaced, and that are still there."""
    superseded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of the problems whose labels in a block no longer count, by block."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Block whose labels count instead, if there is one, by superseded problem."""
    foreign: tuple[str, ...] = ()
    """Files in `labels/` that the run's plan does not name."""
    too_small: tuple[str, ...] = ()
    """Labels shards that have fewer bytes than any shard."""
    lost: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Blocks of which nothing is left, by the merged shard that held them and is gone."""

    @cached_property
    def files(self) -> tuple[str, ...]:
        """Labels shards, each once, in a fixed order."""
        return tuple(sorted({place.file for place in self.blocks.values()}))

    def losses(self, store: Store) -> Iterator[DamagedFile]:
        """Yield a fault for each merged shard that is missing with all of its blocks."""
        for name, blocks in self.lost.items():
            fault = f"missing, though {len(blocks):,} blocks were merged into it"
            again = "Run the job again, which labels these blocks again"
            yield DamagedFile(store.location, name, fault, again)

    def parts(
        self,
        store: Store,
        file: str,
        blocks: Sequence[str],
        metadata: Mapping[str, Any],
        table: pa.Table,
    ) -> list[pa.Table]:
        """Return the rows that count of each of some blocks, from the table of their shard.

        Args:
            store: the run's store, for messages.
            file: the shard.
            blocks: in it.
            metadata: the shard's metadata.
            table: the shard's rows.

        Raises:
            DamagedFile: the shard holds other blocks, or lacks rows of one.
        """
        places = {block: self.blocks[block] for block in blocks}
        is_merged = any(place.is_merged for place in places.values())
        recorded = metadata.get("blocks", {}) if is_merged else {metadata.get("block"): None}
        for block, place in places.items():
            if block not in recorded or recorded[block] != place.num_rows:
                names = ", ".join(map(repr, list(recorded)[:3]))
                raise damaged(store, file, f"holds block {names}, but must hold {block!r}")
            if place.offset + (place.num_rows or 0) > table.num_rows:
                raise damaged(store, file, f"lacks rows of block {block}")
        return [
            without_problems(
                table.slice(place.offset, place.num_rows), self.superseded.get(block, ())
            )
            for block, place in places.items()
        ]

    def without_rows(
        self, blocks: Iterable[str], metadata: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return the problems of a shard that have no labels, without superseded ones.

        Args:
            blocks: ids of the blocks in the shard.
            metadata: the shard's metadata.

        Returns:
            Maps `dropped` and `set_aside` each to the shard's records by problem id.
        """
        superseded = self.superseded_in(blocks)
        return {
            kind: {k: v for k, v in metadata.get(kind, {}).items() if k not in superseded}
            for kind in WITHOUT_ROWS
        }

    def superseded_in(self, blocks: Iterable[str]) -> frozenset[str]:
        """Return the problems for which every result in a shard is superseded.

        A merged shard may hold both the block whose result for a problem is superseded and the
        block that replaces it. The merge dropped the superseded result, so such a problem is left
        out here.

        Args:
            blocks: ids of the blocks in the shard.
        """
        held = frozenset(blocks)
        return frozenset(
            problem
            for block in held
            for problem in self.superseded.get(block, ())
            if self.replaced.get(problem) not in held
        )

    def by_file(self) -> dict[str, list[str]]:
        """Return the blocks in each shard, in its order."""
        grouped: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for name, place in self.blocks.items():
            grouped[place.file].append((place.offset, name))
        return {file: [name for _, name in sorted(blocks)] for file, blocks in grouped.items()}


def read_catalog(store: Store, *, must_be_whole: bool = True) -> Catalog:
    """Return the catalog of the blocks that are committed now.

    Args:
        store: the run's store.
        must_be_whole: whether blocks that the run once had must be there. Jobs, which make lost
            blocks again, and `verify`, which lists them, give False.

    Raises:
        DamagedFile: a merge's catalog, or the plan, is damaged; or a block is lost.
    """
    # The order matters while jobs and merges go on. The record of the end is read before the shards
    # are listed, as a job may end meanwhile; shards are listed before the merges, so that a block
    # whose small shard is already gone is found in a merge; the plan is read last, so that it names
    # every listed block.
    finished = read_finished(store) if must_be_whole else None
    too_small: list[str] = []
    there = PackedNames(_own_blocks(store, too_small))
    number, named, sizes = _merged(store)
    merged = {block: place for block, place in named.items() if place.file in sizes}
    lost: dict[str, list[str]] = defaultdict(list)
    for block, place in named.items():
        if place.file not in sizes and block not in there:
            lost[place.file].append(block)
    plan = planned_blocks(store)
    alone: Iterable[str] = (block for block in there if block not in merged)
    if plan is not None:
        alone = (block for block in there if block not in merged and block in plan.names)
    blocks = Blocks(alone, merged)
    catalog = Catalog(
        blocks=blocks,
        number=number,
        merged_away=tuple(_own_shard(block) for block in there if block in merged),
        superseded={} if plan is None else plan.superseded,
        replaced={} if plan is None else plan.replaced,
        foreign=()
        if plan is None
        else tuple(_own_shard(block) for block in there if block not in plan.names),
        too_small=(
            *(name for name in too_small if blocks.own(name)),
            *(name for name, size in sizes.items() if size < SMALLEST),
        ),
        lost={file: tuple(blocks) for file, blocks in lost.items()},
    )
    if must_be_whole:
        for loss in catalog.losses(store):
            raise loss
        if blocks or not holds_opinions(store):
            check_whole(store, finished, blocks, len(blocks), "labels")
    return catalog


def without_problems(table: pa.Table, problem_ids: Collection[str]) -> pa.Table:
    """Return the rows of other problems."""
    if not problem_ids:
        return table
    ids = pa.array(list(problem_ids), pa.string())
    return table.filter(pc.invert(pc.is_in(table.column("problem_id"), value_set=ids)))


def _own_blocks(store: Store, too_small: list[str]) -> Iterator[str]:
    """Yield blocks with a shard of their own, and note the shards that are too small."""
    for name, size in store.sizes("labels"):
        # A folder of several runs may have one that is called labels, with shards deeper down.
        if name.endswith(".parquet") and name.count("/") == 1:
            if size < SMALLEST:
                too_small.append(name)
            yield name.removeprefix("labels/").removesuffix(".parquet")


def _merged(store: Store) -> tuple[int, dict[str, Place], dict[str, int]]:
    """Return the last number, the places of merged blocks, and the sizes of merged shards."""
    while True:
        numbers = _numbers(store)
        places: dict[str, Place] = {}
        for name in numbers:
            for row in _rows(store, name):
                places[row["block"]] = Place(row["file"], row["offset"], row["num_rows"])
        files = {place.file for place in places.values()}
        sizes = dict(store.sizes(f"{MERGED}/labels")) if files else {}
        last = numbers[-1] if numbers else ""
        if files <= sizes.keys() or all(name <= last for name in _numbers(store)):
            break  # else a merge has just ended, and has deleted what earlier ones wrote
    return (
        int(_NUMBER.fullmatch(last)[1]) if last else 0,  # type: ignore[index]
        places,
        {file: size for file, size in sizes.items() if file in files},
    )


def _numbers(store: Store) -> list[str]:
    return [name for name in store.names(FOLDER) if _NUMBER.fullmatch(name)]


def _catalog_file(number: int) -> str:
    return f"{FOLDER}/{number:06d}.parquet"


def _own_shard(block: str) -> str:
    return f"labels/{block}.parquet"


def commit_merge(store: Store, number: int, places: dict[str, Place]) -> bool:
    """Record where merged blocks lie from now on; False if another merge has taken the number."""
    rows = [
        {"block": block, "file": place.file, "offset": place.offset, "num_rows": place.num_rows}
        for block, place in places.items()
    ]
    schema = SCHEMA.with_metadata({_NUMBER_KEY: str(number)})
    content = parquet_with_digest(pa.Table.from_pylist(rows, schema=schema), compression="zstd")
    name = _catalog_file(number)
    # Or it was this merge's, and the store's answer was lost.
    return store.create(name, content) or _rows(store, name) == rows


def _rows(store: Store, name: str) -> list[dict[str, Any]]:
    number, rows = read_stamped(store, name, SCHEMA, key=_NUMBER_KEY)
    if (own := _catalog_file(number)) != name:
        raise damaged(store, name, f"it is {own}, put in the place of this file")
    return rows.to_pylist()  # type: ignore[no-any-return]
