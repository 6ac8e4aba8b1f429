"""Shards of a job over solutions: a row for each, with its scores or with a judge's opinion.

    OUT/
      run.json                   what scored or judged, created once
      FOLDER/BLOCK.parquet       one row a solution

A block's shard is created exclusively, as a whole: of several attempts one wins. It carries its
`digest`, and its metadata say which solutions of the block have no row, and why. Where the run's
plan has superseded a solution (`plan`), its row no longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.data.parquet import whole_table
from mclabel.data.shards.damage import CUT_OFF, damaged
from mclabel.data.shards.digest import SMALLEST, check_parquet, is_cut_off, parquet_with_digest
from mclabel.data.shards.manifest import MANIFEST, read_claim
from mclabel.data.shards.packed import PackedNames
from mclabel.data.shards.plan import planned_blocks
from mclabel.data.shards.store import Store
from mclabel.errors import DamagedFile, ShardError

_METADATA_KEY = b"mclabel"


@dataclass(frozen=True, kw_only=True)
class RowBlocks:
    """The committed blocks of a job."""

    blocks: PackedNames
    superseded: Mapping[str, frozenset[str]]
    """By block: ids of the solutions whose rows in it no longer count."""
    foreign: tuple[str, ...]
    """Files among the shards that belong to no block of the job."""


@dataclass(frozen=True, kw_only=True)
class RowShards:
    """The shards of one kind of job."""

    folder: str
    """Under the run's."""
    what: str
    """What a shard holds, as messages call it."""
    use: str
    """What can be done with such a run, for messages."""
    task: str
    """What the manifest of such a run calls its task."""
    version: int
    schema: pa.Schema
    """Its columns `id`, `row` (the number of the solution in the input, from 1) and `input` (that
    row as JSON) are those of every kind."""

    def commit(
        self,
        store: Store,
        block_id: str,
        attempt: str,
        rows: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any],
    ) -> bool:
        """Write a block's shard; False if another attempt had committed the block before.

        Args:
            store: the run's.
            block_id: names the shard.
            attempt: unique to this attempt at the block.
            rows: one a solution, with the columns of the schema.
            metadata: JSON-serialisable; with `set_aside`, solutions without a row by id.
        """
        stamp = {**metadata, "version": self.version, "block": block_id, "attempt": attempt}
        table = pa.Table.from_pylist(list(rows), schema=self.schema).replace_schema_metadata(
            {_METADATA_KEY: json.dumps(stamp).encode()}
        )
        if store.create(self.name_of(block_id), parquet_with_digest(table, compression="zstd")):
            return True
        # Or it was this attempt's, and the store's answer was lost.
        return bool(self.read(store, block_id)[0]["attempt"] == attempt)

    def blocks(self, store: Store) -> RowBlocks:
        """The blocks whose shards are committed.

        Raises:
            DamagedFile: a shard is cut off, or the plan is damaged.
        """
        sizes = {name: size for name, size in store.sizes(self.folder) if name.endswith(".parquet")}
        plan = planned_blocks(store)
        there = PackedNames(self.block_of(name) for name in sizes)
        blocks = (
            there if plan is None else PackedNames(name for name in there if name in plan.names)
        )
        cut_off = {name for name in map(self.name_of, blocks) if sizes[name] < SMALLEST}
        if store.is_local:
            tails = store.tails(map(self.name_of, blocks), 8)
            cut_off.update(name for name, tail in tails if is_cut_off(tail))
        if cut_off:
            raise damaged(store, min(cut_off), CUT_OFF)
        return RowBlocks(
            blocks=blocks,
            superseded={} if plan is None else plan.superseded,
            foreign=tuple(self.name_of(name) for name in there if name not in blocks),
        )

    def read(self, store: Store, block_id: str) -> tuple[dict[str, Any], pa.Table]:
        """Metadata and table of a block's shard.

        Raises:
            DamagedFile: the shard is missing, damaged, or of another version.
        """
        name = self.name_of(block_id)
        content = store.read(name)
        if content is None:
            raise damaged(store, name, "missing, though its block is done")
        if check_parquet(content) != "sound":
            raise damaged(store, name)
        try:
            table = whole_table(pq.ParquetFile(pa.BufferReader(content)))
            metadata = json.loads((table.schema.metadata or {})[_METADATA_KEY])
            if not isinstance(metadata["set_aside"], dict):
                raise ValueError("set_aside must be an object")
            version = metadata["version"]
            table.select(self.schema.names).cast(self.schema)
        except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
            fault = f"damaged, or not a shard of {self.what} ({error})"
            raise damaged(store, name, fault) from error
        if metadata.get("block") != block_id:
            fault = f"holds block {metadata.get('block')!r}, but must hold {block_id!r}"
            raise damaged(store, name, fault)
        if version != self.version:
            fault = f"has version {version}, this mclabel reads {self.version}"
            raise damaged(store, name, fault)
        return metadata, table

    def rows(self, store: Store, blocks: RowBlocks | None = None) -> Iterator[dict[str, Any]]:
        """Every row of a run that counts, block by block.

        Args:
            store: the run's.
            blocks: as `blocks` gave them; None asks for them.

        Raises:
            DamagedFile: a shard is damaged.
        """
        blocks = blocks or self.blocks(store)
        for block in blocks.blocks:
            left_out = blocks.superseded.get(block, frozenset())
            _, table = self.read(store, block)
            yield from (row for row in table.to_pylist() if row["id"] not in left_out)

    def without_rows(self, store: Store, noted: Iterable[str]) -> Iterator[dict[str, Any]]:
        """The `row`, `reason` and `detail` of solutions that committed blocks have no rows for.

        Args:
            store: the run's.
            noted: ids of the blocks that may have such solutions.
        """
        done = self.blocks(store)
        for block in noted:
            if block in done.blocks:
                left_out = done.superseded.get(block, frozenset())
                set_aside: dict[str, dict[str, Any]] = self.read(store, block)[0]["set_aside"]
                yield from (why for name, why in set_aside.items() if name not in left_out)

    def name_of(self, block_id: str) -> str:
        """Name of a block's shard."""
        return f"{self.folder}/{block_id}.parquet"

    def block_of(self, name: str) -> str:
        """The block of a shard."""
        return name.removeprefix(f"{self.folder}/").removesuffix(".parquet")


_ITEM = (
    pa.field("id", pa.string(), nullable=False),
    pa.field("row", pa.int64(), nullable=False),
    pa.field("input", pa.string(), nullable=False),
)

_FLAG = pa.struct(
    [
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)
_ANSWER = pa.struct(
    [
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("max_tokens", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
    ]
)
OPINIONS = RowShards(
    folder="opinions",
    what="opinions",
    use="`mclabel show` prints them, `mclabel combine` makes labels of them",
    task="judge",
    version=1,
    schema=pa.schema(
        [
            *_ITEM,
            pa.field("num_steps", pa.int32(), nullable=False),
            pa.field("is_known", pa.bool_(), nullable=False),
            pa.field("first_error", pa.int32()),
            pa.field("sureness", pa.float64()),
            pa.field("reason", pa.string(), nullable=False),
            pa.field("votes", pa.list_(pa.int32()), nullable=False),
            pa.field("scores", pa.list_(pa.float64()), nullable=False),
            pa.field("flags", pa.list_(_FLAG), nullable=False),
            pa.field("answers", pa.list_(_ANSWER), nullable=False),
            pa.field("num_tokens", pa.int64(), nullable=False),
        ]
    ),
)
"""What a judge's job writes; the columns are explained in docs/formats.md."""


def row_shards_of(store: Store) -> RowShards | None:
    """What a run over solutions holds, None of one that holds labels.

    If its manifest is unreadable, its folders decide.
    """
    try:
        manifest = read_claim(store, MANIFEST)
    except DamagedFile:
        manifest = None
    if manifest is not None:
        return OPINIONS if manifest["config"].get("task") == OPINIONS.task else None
    if any(store.listed("labels")):
        return None
    return OPINIONS if any(store.listed(OPINIONS.folder)) else None


def no_labels(store: Store) -> ShardError:
    """The error of a command that needs labels, on a run that has none."""
    if (kind := row_shards_of(store)) is not None:
        return ShardError(f"{store.location}: holds {kind.what}, not labels. {kind.use}")
    return ShardError(
        f"{store.location}: holds no labels/*.parquet. Give the `out` of a labelling job"
    )
