"""Score shards: what a scoring job writes, and reading it back.

    OUT/
      run.json                   the scorer's identity, created once
      scores/BLOCK.parquet       one row a scored solution

A block's shard is created exclusively, as a whole: of several attempts one wins. It carries its
`digest`, and its metadata say which solutions of the block have no scores, and why. Where the run's
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
from mclabel.data.shards.packed import PackedNames
from mclabel.data.shards.plan import planned_blocks
from mclabel.data.shards.store import Store

FOLDER = "scores"
SCORES_VERSION = 1
SCORES_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("input", pa.string(), nullable=False),
        pa.field("scores", pa.list_(pa.float64()), nullable=False),
    ]
)
"""`row` is the number of the solution in the input, from 1, and `input` that row as JSON. A column
for each aggregation of the scores follows."""
_METADATA_KEY = b"mclabel"


@dataclass(frozen=True, kw_only=True)
class ScoredBlocks:
    """The committed blocks of a scoring job."""

    blocks: PackedNames
    superseded: Mapping[str, frozenset[str]]
    """By block: ids of the solutions whose rows in it no longer count."""
    foreign: tuple[str, ...]
    """Files among the shards that belong to no block of the job."""


def commit_scores(
    store: Store,
    block_id: str,
    attempt: str,
    rows: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any],
    *,
    aggregations: Sequence[str],
) -> bool:
    """Write a block's shard; False if another attempt had committed the block before.

    Args:
        store: the run's.
        block_id: names the shard.
        attempt: unique to this attempt at the block.
        rows: one a solution, with the columns of the schema and of the aggregations.
        metadata: JSON-serialisable; with `set_aside`, solutions without scores by id.
        aggregations: names of the columns behind those of the schema.
    """
    schema = SCORES_SCHEMA
    for name in aggregations:
        schema = schema.append(pa.field(name, pa.float64(), nullable=False))
    stamp = {**metadata, "version": SCORES_VERSION, "block": block_id, "attempt": attempt}
    table = pa.Table.from_pylist(list(rows), schema=schema).replace_schema_metadata(
        {_METADATA_KEY: json.dumps(stamp).encode()}
    )
    name = _shard(block_id)
    if store.create(name, parquet_with_digest(table, compression="zstd")):
        return True
    # Or it was this attempt's, and the store's answer was lost.
    return bool(read_scores(store, block_id)[0]["attempt"] == attempt)


def scored_blocks(store: Store) -> ScoredBlocks:
    """The blocks whose scores are committed.

    Raises:
        DamagedFile: a shard is cut off, or the plan is damaged.
    """
    sizes = {name: size for name, size in store.sizes(FOLDER) if name.endswith(".parquet")}
    plan = planned_blocks(store)
    there = PackedNames(_block(name) for name in sizes)
    blocks = there if plan is None else PackedNames(name for name in there if name in plan.names)
    cut_off = {name for name in map(_shard, blocks) if sizes[name] < SMALLEST}
    if store.is_local:
        tails = store.tails(map(_shard, blocks), 8)
        cut_off.update(name for name, tail in tails if is_cut_off(tail))
    if cut_off:
        raise damaged(store, min(cut_off), CUT_OFF)
    return ScoredBlocks(
        blocks=blocks,
        superseded={} if plan is None else plan.superseded,
        foreign=tuple(_shard(name) for name in there if name not in blocks),
    )


def read_scores(store: Store, block_id: str) -> tuple[dict[str, Any], pa.Table]:
    """Metadata and table of a block's shard.

    Raises:
        DamagedFile: the shard is missing, damaged, or of another version.
    """
    name = _shard(block_id)
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
        table.select(SCORES_SCHEMA.names).cast(SCORES_SCHEMA)
    except (pa.ArrowException, OSError, ValueError, LookupError, TypeError) as error:
        raise damaged(store, name, f"damaged, or no shard of scores ({error})") from error
    if metadata.get("block") != block_id:
        fault = f"holds block {metadata.get('block')!r}, and not {block_id!r} as it should"
        raise damaged(store, name, fault)
    if version != SCORES_VERSION:
        raise damaged(store, name, f"of version {version}, not {SCORES_VERSION}")
    return metadata, table


def score_rows(store: Store, blocks: ScoredBlocks | None = None) -> Iterator[dict[str, Any]]:
    """Every scored solution of a run that counts, block by block.

    Args:
        store: the run's.
        blocks: as `scored_blocks` gave them; None asks for them.

    Raises:
        DamagedFile: a shard is damaged.
    """
    blocks = blocks or scored_blocks(store)
    for block in blocks.blocks:
        left_out = blocks.superseded.get(block, frozenset())
        _, table = read_scores(store, block)
        yield from (row for row in table.to_pylist() if row["id"] not in left_out)


def unscored(store: Store, noted: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The `row`, `reason` and `detail` of solutions that committed blocks have no scores for.

    Args:
        store: the run's.
        noted: ids of the blocks that may have such solutions.
    """
    done = scored_blocks(store)
    for block in noted:
        if block in done.blocks:
            left_out = done.superseded.get(block, frozenset())
            set_aside: dict[str, dict[str, Any]] = read_scores(store, block)[0]["set_aside"]
            yield from (why for name, why in set_aside.items() if name not in left_out)


def _shard(block_id: str) -> str:
    return f"{FOLDER}/{block_id}.parquet"


def _block(name: str) -> str:
    return name.removeprefix(f"{FOLDER}/").removesuffix(".parquet")
