"""Label and rollout shards: the commit rule, and reading them back.

A run's folder holds

    run.json                              the semantic configuration, created once
    labels/BLOCK.parquet                  one row a labelled solution
    rollouts/BLOCK.ATTEMPT.parquet        one row a rollout, with its text

A block's rollouts are written first, under the name of the attempt; then its labels are
created exclusively, with the rollouts file of their own attempt named in the metadata. So of
several attempts at a block one wins as a whole, whatever is killed and when. Readers follow
the labels; a rollouts file that none names belongs to an attempt that lost. `catalog` knows which
labels shards stand for which blocks once small ones were merged. Shards carry their `digest`, which
every reader checks.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mclabel.data.catalog import Catalog, read_catalog
from mclabel.data.damage import CHANGED, CUT_OFF, damaged, remedy
from mclabel.data.digest import (
    check_parquet,
    is_cut_off,
    parquet_digest,
    parquet_with_digest,
)
from mclabel.data.packed import PackedNames
from mclabel.data.parquet import table_too_large, whole_table
from mclabel.data.schema import (
    LABELS_SCHEMA,
    READABLE_VERSIONS,
    ROLLOUTS_SCHEMA,
    SCHEMA_VERSION,
    label_row,
    labeled_solution,
    recorded_rollout,
    rollout_row,
)
from mclabel.data.store import Store
from mclabel.errors import DamagedFile, ShardError
from mclabel.records import (
    LabeledSolution,
    Rollout,
)

METADATA_KEY = b"mclabel"
_SMALL_BYTES = 1 << 15
"""Less is mostly schema in the file: compressing it, and statistics, only take time."""
_AT_A_TIME = 64
"""Rows of a shard that become objects together: a reader may want the first ones alone."""

TAIL = 8
"""Bytes that end a Parquet file: the footer's length and a magic number."""
_MAX_NAMED = 20
"""Damaged shards that a message names."""
_WITH_DIGEST = 4
"""Schema version from which on every shard carries its digest."""

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
    rollouts_name = digest = None
    if rollouts is not None:
        rollouts_name = f"rollouts/{block_id}.{attempt}.parquet"
        rows = pa.Table.from_pylist([rollout_row(r) for r in rollouts], schema=ROLLOUTS_SCHEMA)
        metadata = {**provenance, "block": block_id, "attempt": attempt}
        digest = write_rollouts(store, rollouts_name, rows, metadata)
    metadata = {
        **provenance,
        "kind": "labels",
        "block": block_id,
        "attempt": attempt,
        "rollouts": rollouts_name,
        "rollouts_digest": digest,
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
    """Ids of the blocks whose labels are committed.

    Raises:
        DamagedFile: names shards that are cut off, and the remedy.
    """
    catalog = read_catalog(store)
    check_not_cut_off(store, catalog)
    return catalog.blocks.keys()


def check_not_cut_off(store: Store, catalog: Catalog) -> None:
    """Find labels shards that are obviously no longer whole, without reading them.

    In a folder those that lack their end, elsewhere those that are smaller than any shard; `verify`
    reads all.

    Raises:
        DamagedFile: names them, and the remedy.
    """
    cut_off = set(catalog.too_small)
    if store.is_local:
        tails = store.tails(catalog.blocks.files(), TAIL)
        cut_off.update(name for name, tail in tails if is_cut_off(tail))
    if cut_off:
        first, *others = sorted(cut_off)
        what = remedy(first)
        if others:
            more = ", …" if len(others) > _MAX_NAMED else ""
            what += f". So are {len(others):,} others: {', '.join(others[:_MAX_NAMED])}{more}"
        raise DamagedFile(store.location, first, CUT_OFF, what)


def read_labels(store: Store, blocks: Collection[str] | None = None) -> Iterator[LabeledSolution]:
    """Every labelled solution of a run, in a fixed order.

    Args:
        store: the run's.
        blocks: ids of the blocks to read; None reads all.

    Raises:
        ShardError: no labels, a damaged shard, or one of another schema version.
    """
    for metadata, table in label_tables(store, blocks):
        try:
            for rows in table.to_batches(max_chunksize=_AT_A_TIME):
                yield from map(labeled_solution, rows.to_pylist())
        except (ValueError, TypeError, LookupError) as error:  # of a shard without a digest
            name = f"labels/{metadata.get('block')}.parquet"
            raise damaged(store, name, f"damaged, or no labels shard ({error})") from error


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
    for name, missing in catalog.lost.items():
        if blocks is None or any(block in blocks for block in missing):
            raise DamagedFile(
                store.location,
                name,
                f"is not there, though {len(missing):,} blocks were merged into it",
                "Run the job again: they are labelled again",
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
    for table in rollout_tables(store):
        for row in table.to_pylist():
            yield recorded_rollout(row)


def rollout_tables(store: Store) -> Iterator[pa.Table]:
    """The same as tables, one for each of `label_tables`."""
    for metadata, labels in label_tables(store):
        if metadata["rollouts"] is not None:
            rollouts = named_rollouts(store, metadata)
            # Of a merged shard, label_tables may give a part.
            yield rollouts.filter(pc.is_in(rollouts["problem_id"], pc.unique(labels["problem_id"])))


def named_rollouts(store: Store, metadata: Mapping[str, Any]) -> pa.Table:
    """The rollouts that a labels shard names.

    Args:
        store: the run's.
        metadata: of the labels shard; its `rollouts` is not None.

    Raises:
        DamagedFile: they are missing, damaged, or others than those that the labels rest on.
    """
    name = metadata["rollouts"]
    content = store.read(name)
    if content is None:
        raise damaged(store, name, "missing, though a labels shard names it")
    expected = metadata.get("rollouts_digest")
    table = _opened(store, name, content, "rollouts")[1]
    if expected is not None and parquet_digest(content) != expected:
        raise damaged(store, name, "others than the rollouts that its labels rest on")
    return table


def read_shard(store: Store, name: str, kind: str) -> tuple[dict[str, Any], pa.Table]:
    """A shard's metadata and table.

    Raises:
        DamagedFile: it is missing, damaged, of another kind or another schema version.
    """
    content = store.read(name)
    if content is None:
        raise damaged(store, name, "missing, though a labels shard names it")
    return _opened(store, name, content, kind)


def write_shard(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> bool:
    """Create a shard; False if there is one of that name."""
    return store.create(name, _parquet(table, metadata))


def shard_has_digest(metadata: Mapping[str, Any]) -> bool:
    """Whether a shard with this metadata carries a digest, so that no damage goes unseen."""
    return bool(metadata["schema_version"] >= _WITH_DIGEST)


def write_rollouts(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> str:
    """Create a rollouts shard; its digest, which the labels shard is to name."""
    content = _parquet(table, {**metadata, "kind": "rollouts"})
    store.create(name, content)
    digest = parquet_digest(content)
    assert digest is not None
    return digest


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
    return parquet_with_digest(
        table,
        compression="none" if small else "zstd",
        use_dictionary=not small,
        write_statistics=not small,
    )


def _opened(store: Store, name: str, content: bytes, kind: str) -> tuple[dict[str, Any], pa.Table]:
    """Metadata and table of a file's content; refuses shards of another kind or version."""
    check = check_parquet(content)
    if check == "damaged":
        raise damaged(store, name, CUT_OFF if is_cut_off(content[-TAIL:]) else CHANGED)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        metadata = _metadata(file)
        version = metadata.get("schema_version")
        if metadata.get("kind") != kind or version not in READABLE_VERSIONS:
            raise DamagedFile(
                store.location,
                name,
                f"kind {metadata.get('kind')!r}, schema version {version!r}; this mclabel reads "
                f"{kind!r}, version {SCHEMA_VERSION}",
                "Read it with the mclabel that wrote it (run.json says which), or label again",
            )
        if check == "none" and shard_has_digest(metadata):
            raise damaged(store, name, "damaged, or written again by another program: no digest")
        if (reason := table_too_large(pa.py_buffer(content), file.metadata)) is not None:
            raise ValueError(reason)
        table = _whole(whole_table(file), _SCHEMAS[kind])
        if check == "none":
            table.validate(full=True)
    except DamagedFile:
        raise
    except (
        *(pa.ArrowException, OSError, ValueError, TypeError, LookupError),
        *(AttributeError, RecursionError),
    ) as error:
        raise damaged(store, name, f"damaged, or no {kind} shard ({error})") from error
    return metadata, table


def _metadata(file: pq.ParquetFile) -> dict[str, Any]:
    raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    metadata = json.loads(raw) if raw else {}
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata must be an object, is a {type(metadata).__name__}")
    if metadata.get("kind") == "labels" and "rollouts" not in metadata:
        raise ValueError("its metadata does not say where its rollouts are")
    return metadata


def _whole(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with every column; those younger than the shard are null."""
    for field in schema:
        if field.name not in table.column_names:
            if not field.nullable:
                raise ValueError(f"no column {field.name}")
            table = table.append_column(field, pa.nulls(len(table), field.type))
        elif not table.schema.field(field.name).type.equals(field.type):
            raise ValueError(f"column {field.name} must be {field.type}")
    return table
