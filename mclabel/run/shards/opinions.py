"""Shards of a judge's job, `opinions/BLOCK.parquet`: one row with the opinion on each solution.

A block's shard is created exclusively, so one of several attempts wins. Its metadata name the
solutions without a row, and why. A solution that the plan has superseded no longer counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.run.shards.digest import SMALLEST, is_cut_off, parquet_with_digest
from mclabel.run.shards.finished import check_whole, read_finished
from mclabel.run.shards.manifest import MANIFEST, read_claim
from mclabel.run.shards.plan import PackedNames, planned_blocks
from mclabel.run.shards.schema import FLAG
from mclabel.run.shards.shard import METADATA_KEY, read_stamped
from mclabel.run.shards.store import CUT_OFF, Store, damaged

FOLDER, TASK, VERSION = "opinions", "judge", 1
"""Folder of the shards in a run, its task as the manifest has it, and the version of shards."""
USE = "`mclabel show` prints them, `mclabel combine` makes labels of them"
"""Possible uses of a run of opinions, for messages."""
_ANSWER = pa.struct(
    [
        pa.field("prompt", pa.string(), nullable=False),
        pa.field("number", pa.int32(), nullable=False),
        pa.field("max_tokens", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("num_tokens", pa.int32()),
    ]
)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
        pa.field("input", pa.string(), nullable=False),
        pa.field("num_steps", pa.int32(), nullable=False),
        pa.field("is_known", pa.bool_(), nullable=False),
        pa.field("first_error", pa.int32()),
        pa.field("sureness", pa.float64()),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("votes", pa.list_(pa.int32()), nullable=False),
        pa.field("scores", pa.list_(pa.float64()), nullable=False),
        pa.field("flags", pa.list_(FLAG), nullable=False),
        pa.field("answers", pa.list_(_ANSWER), nullable=False),
        pa.field("num_tokens", pa.int64()),
    ]
)
"""Its columns are explained in docs/formats.md; `row` is the number of the solution in the input,
from 1, and `input` that row as JSON."""


@dataclass(frozen=True, kw_only=True)
class OpinionBlocks:
    """The committed blocks of a job."""

    blocks: PackedNames
    superseded: Mapping[str, frozenset[str]]
    """Ids of the solutions whose rows in a block no longer count, by block."""
    foreign: tuple[str, ...]
    """Files among the shards that belong to no block of the job."""


def commit_opinions(
    store: Store,
    block_id: str,
    attempt: str,
    rows: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any],
) -> bool:
    """Write a block's shard; False if another attempt had committed the block before.

    Args:
        store: the run's store.
        block_id: names the shard.
        attempt: unique to this attempt at the block.
        rows: one a solution, with the columns of the schema.
        metadata: JSON-serialisable; with `set_aside`, solutions without a row by id.
    """
    stamp = {**metadata, "version": VERSION, "block": block_id, "attempt": attempt}
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA).replace_schema_metadata(
        {METADATA_KEY: json.dumps(stamp).encode()}
    )
    if store.create(shard_name(block_id), parquet_with_digest(table, compression="zstd")):
        return True
    # Or it was this attempt's, and the store's answer was lost.
    return bool(read_block(store, block_id)[0]["attempt"] == attempt)


def opinion_blocks(store: Store, *, must_be_whole: bool = True) -> OpinionBlocks:
    """Return the blocks whose shards are committed.

    Args:
        store: the run's store.
        must_be_whole: see `mclabel.run.shards.catalog.read_catalog`.

    Raises:
        DamagedFile: a shard is lost or cut off, or the plan is damaged.
    """
    finished = read_finished(store) if must_be_whole else None
    sizes = {name: size for name, size in store.sizes(FOLDER) if name.endswith(".parquet")}
    plan = planned_blocks(store)
    there = PackedNames(block_of(name) for name in sizes)
    blocks = there if plan is None else PackedNames(name for name in there if name in plan.names)
    cut_off = {name for name in map(shard_name, blocks) if sizes[name] < SMALLEST}
    if store.is_local:
        tails = store.tails(map(shard_name, blocks), 8)
        cut_off.update(name for name, tail in tails if is_cut_off(tail))
    if cut_off:
        raise damaged(store, min(cut_off), CUT_OFF)
    check_whole(store, finished, blocks, len(blocks), FOLDER)
    return OpinionBlocks(
        blocks=blocks,
        superseded={} if plan is None else plan.superseded,
        foreign=tuple(shard_name(name) for name in there if name not in blocks),
    )


def read_block(store: Store, block_id: str) -> tuple[dict[str, Any], pa.Table]:
    """Return the metadata and table of a block's shard.

    Raises:
        DamagedFile: the shard is missing, damaged, or of another version.
    """
    name = shard_name(block_id)
    metadata, table = read_stamped(store, name, SCHEMA)
    own = (metadata.get("version"), metadata.get("block"))
    if own != (VERSION, block_id):
        fault = f"holds block {own[1]!r} in version {own[0]}, must hold {block_id!r} in {VERSION}"
        raise damaged(store, name, fault)
    return metadata, table


def opinion_rows(store: Store) -> Iterator[dict[str, Any]]:
    """Read every row of a run that counts, block by block.

    Raises:
        DamagedFile: a shard is lost or damaged.
    """
    blocks = opinion_blocks(store)
    for block in blocks.blocks:
        left_out = blocks.superseded.get(block, frozenset())
        _, table = read_block(store, block)
        yield from (row for row in table.to_pylist() if row["id"] not in left_out)


def without_opinions(store: Store, noted: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield `row`, `reason` and `detail` of solutions for which committed blocks have no row.

    Args:
        store: the run's store.
        noted: ids of the blocks that may have such solutions.
    """
    done = opinion_blocks(store, must_be_whole=False)
    for block in noted:
        if block in done.blocks:
            left_out = done.superseded.get(block, frozenset())
            set_aside: dict[str, dict[str, Any]] = read_block(store, block)[0]["set_aside"]
            yield from (why for name, why in set_aside.items() if name not in left_out)


def shard_name(block_id: str) -> str:
    """Name of a block's shard."""
    return f"{FOLDER}/{block_id}.parquet"


def block_of(name: str) -> str:
    """Return the block of a shard."""
    return name.removeprefix(f"{FOLDER}/").removesuffix(".parquet")


def holds_opinions(store: Store) -> bool:
    """Return whether a run holds opinions. If its manifest is unreadable, its folders decide."""
    try:
        manifest = read_claim(store, MANIFEST)
    except DamagedFile:
        manifest = None
    if manifest is not None:
        return bool(manifest["config"].get("task") == TASK)
    return not any(store.listed("labels")) and any(store.listed(FOLDER))


def no_labels(store: Store) -> ShardError:
    """Return the error of a command that needs labels, on a run that has none."""
    if holds_opinions(store):
        return ShardError(f"{store.location}: holds opinions, not labels. {USE}")
    inside = sorted(Path(store.location).glob("*/labels")) if "://" not in store.location else []
    if inside:
        names = ", ".join(str(folder.parent) for folder in inside)
        return ShardError(f"{store.location}: is no run of labels, but holds some. Give {names}")
    return ShardError(
        f"{store.location}: holds no labels/*.parquet. Give the `out` of a labelling job, of which "
        "a block is done; running the job again resumes it"
    )
