"""Label and rollout shards: the commit rule, and reading them back.

A run's folder holds

    run.json                              the semantic configuration, created once
    labels/BLOCK.parquet                  one row a labelled solution
    rollouts/BLOCK.ATTEMPT.parquet        one row a rollout, with its text

A block's rollouts are written first, under the name of the attempt; then its labels are
created exclusively, with the rollouts file of their own attempt named in the metadata. So of
several attempts at a block one wins as a whole, whatever is killed and when. Readers follow
the labels; a rollouts file that none names belongs to an attempt that lost. `catalog` knows which
labels shards stand for which blocks once small ones were merged.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mclabel.data.catalog import read_catalog
from mclabel.data.packed import PackedNames
from mclabel.data.schema import (
    LABELS_SCHEMA,
    ROLLOUTS_SCHEMA,
    SCHEMA_VERSION,
    label_row,
    labeled_solution,
    recorded_rollout,
    rollout_row,
)
from mclabel.data.store import Store
from mclabel.errors import ShardError
from mclabel.records import (
    LabeledSolution,
    Rollout,
)

METADATA_KEY = b"mclabel"
_SMALL_BYTES = 1 << 15
"""Less is mostly schema in the file: compressing it, and statistics, only take time."""

_SCHEMAS = {"labels": LABELS_SCHEMA, "rollouts": ROLLOUTS_SCHEMA}


def commit_block(
    store: Store,
    block_id: str,
    attempt: str,
    labeled: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout] | None,
    provenance: Mapping[str, Any],
    dropped: Mapping[str, Mapping[str, int]] | None = None,
    set_aside: Mapping[str, Mapping[str, str]] | None = None,
    cost: Mapping[str, int] | None = None,
) -> bool:
    """Write a block's shards; False if another attempt had committed it before.

    Args:
        store: the run's.
        block_id: names the labels shard.
        attempt: unique to this attempt at the block.
        labeled: rows of the labels shard.
        rollouts: rows of the rollouts shard, None to keep none.
        provenance: goes into the shards' metadata, JSON-serialisable.
        dropped: problems without rows, by id, with `num_sampled` and `num_right`.
        set_aside: problems that could not be labelled, by id, with `reason` and `detail`.
        cost: `num_tokens` sampled for the block and `num_rollouts`, for forecasts.
    """
    rollouts_name = None
    if rollouts is not None:
        rollouts_name = f"rollouts/{block_id}.{attempt}.parquet"
        rows = pa.Table.from_pylist([rollout_row(r) for r in rollouts], schema=ROLLOUTS_SCHEMA)
        metadata = {**provenance, "kind": "rollouts", "block": block_id, "attempt": attempt}
        write_shard(store, rollouts_name, rows, metadata)
    metadata = {
        **provenance,
        "kind": "labels",
        "block": block_id,
        "attempt": attempt,
        "rollouts": rollouts_name,
        "dropped": dict(dropped or {}),
        "set_aside": dict(set_aside or {}),
        "cost": None if cost is None else dict(cost),
    }
    labels_name = f"labels/{block_id}.parquet"
    rows = pa.Table.from_pylist([label_row(row) for row in labeled], schema=LABELS_SCHEMA)
    won = write_shard(store, labels_name, rows, metadata)
    if not won:  # or it was this attempt's, and the store's answer was lost
        won = read_shard(store, labels_name, "labels")[0]["attempt"] == attempt
    if not won and rollouts_name is not None:
        store.delete(rollouts_name)
    return won


def committed_blocks(store: Store) -> Set[str]:
    """Ids of the blocks whose labels are committed."""
    return read_catalog(store).blocks.keys()


def read_labels(store: Store, blocks: Collection[str] | None = None) -> Iterator[LabeledSolution]:
    """Every labelled solution of a run, in a fixed order.

    Args:
        store: the run's.
        blocks: ids of the blocks to read; None reads all.

    Raises:
        ShardError: no labels, a torn shard, or one of another schema version.
    """
    for _, table in label_tables(store, blocks):
        for row in table.to_pylist():
            yield labeled_solution(row)


def label_tables(
    store: Store, blocks: Collection[str] | None = None
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Metadata and table of each labels shard, or of those of `blocks`.

    A shard that is merged into another one meanwhile is read from there.
    """
    catalog = read_catalog(store)
    if not catalog.files:
        raise ShardError(
            f"{store.location}: holds no labels/*.parquet. Give the `out` of a labelling job"
        )
    by_file = catalog.by_file()
    for name in catalog.files:
        wanted = [block for block in by_file[name] if blocks is None or block in blocks]
        content = store.read(name) if wanted else None
        if content is not None:
            metadata, table = _opened(store, name, content, "labels")
            yield metadata, pa.concat_tables(catalog.rows_of(block, table) for block in wanted)
            continue
        for block in wanted:
            now = read_catalog(store)
            place = now.blocks.get(block)
            if place is None or place.file == name:
                raise ShardError(f"{store.location}/{name}: gone while it was read")
            metadata, table = read_shard(store, place.file, "labels")
            yield metadata, now.rows_of(block, table)


def read_rollouts(store: Store) -> Iterator[Rollout]:
    """The rollouts that the committed labels rest on, shard by shard."""
    for metadata, labels in label_tables(store):
        if metadata["rollouts"] is None:
            continue
        _, table = read_shard(store, metadata["rollouts"], "rollouts")
        counting = pc.is_in(table.column("problem_id"), labels.column("problem_id").unique())
        for row in table.filter(counting).to_pylist():
            yield recorded_rollout(row)


def read_shard(store: Store, name: str, kind: str) -> tuple[dict[str, Any], pa.Table]:
    """A shard's metadata and table.

    Raises:
        ShardError: it is missing, torn, of another kind or another schema version.
    """
    content = store.read(name)
    if content is None:
        raise ShardError(f"{store.location}/{name}: missing, though a labels shard names it")
    return _opened(store, name, content, kind)


def write_shard(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> bool:
    """Create a shard; False if there is one of that name."""
    return store.create(name, _parquet(table, metadata))


def delete_losers(store: Store) -> int:
    """Remove what belongs to attempts that lost; the number of files removed.

    Only for a run in which no attempt is under way. A committed block with one rollouts file has
    that of the attempt that won, which wrote it first; the others' labels are asked. A block that
    was merged into a larger shard needs neither.
    """
    catalog = read_catalog(store)
    losers = list(catalog.merged_away)
    by_block = groupby(
        PackedNames(store.listed("rollouts")),
        lambda name: name.removeprefix("rollouts/").split(".")[0],
    )
    for block, group in by_block:
        names = list(group)
        place = catalog.blocks.get(block)
        if place is None or place.is_merged:
            losers += names
        elif len(names) > 1:
            kept = read_shard(store, place.file, "labels")[0]["rollouts"]
            losers += [name for name in names if name != kept]
    for name in losers:
        store.delete(name)
    store.sweep()
    return len(losers)


def _parquet(table: pa.Table, metadata: Mapping[str, Any]) -> bytes:
    stamp = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}).encode()
    table = table.replace_schema_metadata({METADATA_KEY: stamp})
    small = table.nbytes < _SMALL_BYTES
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="none" if small else "zstd",
        use_dictionary=not small,
        write_statistics=not small,
    )
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _opened(store: Store, name: str, content: bytes, kind: str) -> tuple[dict[str, Any], pa.Table]:
    """Metadata and table of a file's content; refuses shards of another kind or version."""
    try:
        file = pq.ParquetFile(io.BytesIO(content))
        raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
        metadata: dict[str, Any] = json.loads(raw) if raw else {}
        if metadata.get("kind") != kind or metadata.get("schema_version") != SCHEMA_VERSION:
            raise ShardError(
                f"{store.location}/{name}: kind {metadata.get('kind')!r}, schema version "
                f"{metadata.get('schema_version')!r}; this mclabel reads {kind!r}, version "
                f"{SCHEMA_VERSION}. Read it with the mclabel that wrote it (run.json says which), "
                "or label again"
            )
        return metadata, _whole(file.read(), _SCHEMAS[kind])
    except pa.ArrowException as error:
        raise ShardError(f"{store.location}/{name}: torn or no Parquet file ({error})") from error


def _whole(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with every column; those younger than the shard are null."""
    for field in schema:
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table
