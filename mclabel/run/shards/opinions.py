"""Shards of a judge's job, `opinions/BLOCK.parquet`: one row per solution, with the opinion on it.

A block's shard is created exclusively, so exactly one of several attempts commits the block. Its
metadata lists the solutions without a row and the reasons. Rows of solutions that the plan
supersedes, because they were changed or removed later, no longer count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.run.shards.digest import (
    MIN_SHARD_BYTES,
    encode_parquet_with_digest,
    is_truncated_parquet,
)
from mclabel.run.shards.finished import check_complete, read_completion_marker
from mclabel.run.shards.manifest import MANIFEST, read_manifest
from mclabel.run.shards.plan import PackedNames, read_planned_blocks
from mclabel.run.shards.schema import FLAG
from mclabel.run.shards.shard import METADATA_KEY, read_table_with_digest
from mclabel.run.shards.store import CUT_OFF, Store, make_damaged_file_error

FOLDER, TASK, VERSION = "opinions", "judge", 1
"""Folder of the shards in a run, name of the task in the manifest, and version of the shards."""
USE = "`mclabel show` prints them, and `mclabel combine` makes labels from them"
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
"""Columns of a shard of opinions, which docs/formats.md explains. `row` is the number of the
solution's row in the input, from 1, and `input` is this row as JSON."""


@dataclass(frozen=True, kw_only=True)
class OpinionBlocks:
    """The committed blocks of a judge's job."""

    blocks: PackedNames
    """Ids of the blocks."""
    superseded_ids: Mapping[str, frozenset[str]]
    """For each block id, the ids of the solutions whose rows in this block no longer count."""
    foreign_files: tuple[str, ...]
    """Names of files in the shards' folder that belong to no block of the run's plan."""


def commit_opinions(
    store: Store,
    block_id: str,
    attempt: str,
    rows: Sequence[Mapping[str, Any]],
    metadata: Mapping[str, Any],
) -> bool:
    """Write and commit a block's shard.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique id of this attempt at the block.
        rows: one row per solution, with the columns of the schema.
        metadata: JSON-serialisable metadata. Under `set_aside` it holds `row`, `reason` and
            `detail` of the solutions without a row, by solution id.

    Returns:
        False if another attempt had already committed the block.
    """
    stamp = {**metadata, "version": VERSION, "block": block_id, "attempt": attempt}
    table = pa.Table.from_pylist(list(rows), schema=SCHEMA).replace_schema_metadata(
        {METADATA_KEY: json.dumps(stamp).encode()}
    )
    if store.create(
        make_opinions_shard_name(block_id), encode_parquet_with_digest(table, compression="zstd")
    ):
        return True
    # The existing shard can be this attempt's own, if the store's reply was lost.
    return bool(read_opinions_block(store, block_id)[0]["attempt"] == attempt)


def read_opinion_blocks(store: Store, *, require_complete: bool = True) -> OpinionBlocks:
    """Return the blocks whose shards are committed.

    Args:
        store: the run's store.
        require_complete: True raises an error if a block that was once committed is missing.

    Raises:
        DamagedFile: a shard is missing or truncated, or the plan is damaged.
    """
    finished = read_completion_marker(store) if require_complete else None
    sizes = {name: size for name, size in store.sizes(FOLDER) if name.endswith(".parquet")}
    plan = read_planned_blocks(store)
    there = PackedNames(parse_block_id(name) for name in sizes)
    blocks = there if plan is None else PackedNames(name for name in there if name in plan.names)
    cut_off = {
        name for name in map(make_opinions_shard_name, blocks) if sizes[name] < MIN_SHARD_BYTES
    }
    if store.is_local:
        tails = store.read_tails(map(make_opinions_shard_name, blocks), 8)
        cut_off.update(name for name, tail in tails if is_truncated_parquet(tail))
    if cut_off:
        raise make_damaged_file_error(store, min(cut_off), CUT_OFF)
    check_complete(store, finished, blocks, FOLDER)
    return OpinionBlocks(
        blocks=blocks,
        superseded_ids={} if plan is None else plan.superseded_ids,
        foreign_files=tuple(make_opinions_shard_name(name) for name in there if name not in blocks),
    )


def read_opinions_block(store: Store, block_id: str) -> tuple[dict[str, Any], pa.Table]:
    """Return the metadata and table of a block's shard.

    Raises:
        DamagedFile: the shard is missing or damaged, or has another version.
    """
    name = make_opinions_shard_name(block_id)
    metadata, table = read_table_with_digest(store, name, SCHEMA)
    own = (metadata.get("version"), metadata.get("block"))
    if own != (VERSION, block_id):
        fault = f"holds block {own[1]!r} in version {own[0]}, must hold {block_id!r} in {VERSION}"
        raise make_damaged_file_error(store, name, fault)
    return metadata, table


def iter_opinion_rows(store: Store) -> Iterator[dict[str, Any]]:
    """Yield every row of a run that is not superseded, block by block.

    Raises:
        DamagedFile: a shard is missing or damaged.
    """
    blocks = read_opinion_blocks(store)
    for block in blocks.blocks:
        left_out = blocks.superseded_ids.get(block, frozenset())
        _, table = read_opinions_block(store, block)
        yield from (row for row in table.to_pylist() if row["id"] not in left_out)


def read_items_without_opinions(store: Store, block_ids: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield `row`, `reason` and `detail` of each solution without an opinion in committed blocks.

    Args:
        store: the run's store.
        block_ids: ids of all blocks that may have such solutions.
    """
    done = read_opinion_blocks(store, require_complete=False)
    for block in block_ids:
        if block in done.blocks:
            left_out = done.superseded_ids.get(block, frozenset())
            set_aside: dict[str, dict[str, Any]] = read_opinions_block(store, block)[0]["set_aside"]
            yield from (why for name, why in set_aside.items() if name not in left_out)


def make_opinions_shard_name(block_id: str) -> str:
    """Return the name of a block's shard."""
    return f"{FOLDER}/{block_id}.parquet"


def parse_block_id(name: str) -> str:
    """Return the id of the block in a shard, from the shard's name."""
    return name.removeprefix(f"{FOLDER}/").removesuffix(".parquet")


def holds_opinions(store: Store) -> bool:
    """Return whether a run holds opinions, according to its manifest or, if that is unreadable, its
    folders.
    """
    try:
        manifest = read_manifest(store, MANIFEST)
    except DamagedFile:
        manifest = None
    if manifest is not None:
        return bool(manifest["config"].get("task") == TASK)
    return not any(store.iter_names("labels")) and any(store.iter_names(FOLDER))


def make_no_labels_error(store: Store) -> ShardError:
    """Return the error for a command that needs labels and was given a run without any."""
    if holds_opinions(store):
        return ShardError(f"{store.location}: holds opinions, not labels. {USE}")
    inside = sorted(Path(store.location).glob("*/labels")) if "://" not in store.location else []
    if inside:
        names = ", ".join(str(folder.parent) for folder in inside)
        return ShardError(
            f"{store.location}: is not a labelling run, but a folder that holds some. Give {names}"
        )
    return ShardError(
        f"{store.location}: holds no labels/*.parquet. Give the `out` of a labelling job that has "
        "finished at least one block. Running an interrupted job again resumes it"
    )
