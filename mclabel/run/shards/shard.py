"""Reads, checks and writes one shard: a Parquet file with rows, metadata and a digest.

The metadata is a JSON object under the key `mclabel` of the Parquet metadata. The rollout counts in
a labels shard can be checked against the rollouts shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mclabel.core.errors import DamagedFile
from mclabel.core.records import Outcome
from mclabel.core.seeds import prefix_id
from mclabel.run.parquet import describe_oversized_table, read_whole_table
from mclabel.run.shards.digest import (
    check_parquet_digest,
    encode_parquet_with_digest,
    is_truncated_parquet,
    read_parquet_digest,
)
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA, SCHEMA_VERSION
from mclabel.run.shards.store import CHANGED, CUT_OFF, Store, make_damaged_file_error

METADATA_KEY = b"mclabel"
"""Key of the Parquet metadata under which a shard's metadata is stored."""
_SMALL_BYTES = 1 << 15
"""Size in bytes below which tables are written without compression and statistics. The schema takes
most of such a file, so compression and statistics would only cost time."""
TAIL_BYTES = 8
"""Number of bytes at the end of a Parquet file that hold the footer's length and a magic number."""

_SCHEMAS = {"labels": LABELS_SCHEMA, "rollouts": ROLLOUTS_SCHEMA}


def read_shard(store: Store, name: str, shard_kind: str) -> tuple[dict[str, Any], pa.Table]:
    """Return a shard's metadata and table.

    Args:
        store: the run's store.
        name: name of the shard.
        shard_kind: `labels` or `rollouts`.

    Raises:
        DamagedFile: the shard is missing or damaged, or has another kind or schema version.
    """
    content = store.read(name)
    if content is None:
        raise make_damaged_file_error(store, name, "missing, though it is part of the run")
    return open_shard(store, name, content, shard_kind)


def read_table_with_digest(
    store: Store, name: str, schema: pa.Schema, *, key: bytes = METADATA_KEY
) -> tuple[Any, pa.Table]:
    """Read a Parquet file of a run that stores its digest.

    Args:
        store: the run's store.
        name: name of the file.
        schema: columns that the file must have.
        key: metadata key of the JSON value that identifies the file.

    Returns:
        The JSON value under `key`, and the table.

    Raises:
        DamagedFile: the file is missing or damaged, or has other columns.
    """
    content = store.read(name)
    if content is None:
        raise make_damaged_file_error(
            store, name, "missing, though another file of the run names it"
        )
    if check_parquet_digest(content) != "sound":
        raise make_damaged_file_error(store, name)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        if (reason := describe_oversized_table(pa.py_buffer(content), file.metadata)) is not None:
            raise ValueError(reason)
        table = read_whole_table(file)
        stamp = json.loads((table.schema.metadata or {})[key])
        rows = table.replace_schema_metadata(None).select(schema.names).cast(schema)
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise make_damaged_file_error(
            store, name, f"damaged, or another kind of file ({error})"
        ) from error
    return stamp, rows


def write_shard(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> bool:
    """Create a shard; return False and change nothing if a shard of this name exists."""
    return store.create(name, _encode_shard(table, metadata))


def write_rollouts(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> str:
    """Create a rollouts shard, and return its digest, which the labels shard has to store."""
    content = _encode_shard(table, {**metadata, "kind": "rollouts"})
    store.create(name, content)
    digest = read_parquet_digest(content)
    assert digest is not None
    return digest


def open_shard(
    store: Store, name: str, content: bytes, shard_kind: str
) -> tuple[dict[str, Any], pa.Table]:
    """Return the metadata and table of a shard from the bytes of its file.

    Args:
        store: the run's store, for messages.
        name: name of the file, for messages.
        content: bytes of the file.
        shard_kind: `labels` or `rollouts`.

    Raises:
        DamagedFile: the shard is damaged, or has another kind or schema version.
    """
    check = check_parquet_digest(content)
    if check == "damaged":
        raise make_damaged_file_error(
            store, name, CUT_OFF if is_truncated_parquet(content[-TAIL_BYTES:]) else CHANGED
        )
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        metadata = _read_metadata(file)
        version = metadata.get("schema_version")
        if metadata.get("kind") != shard_kind or version != SCHEMA_VERSION:
            raise DamagedFile(
                store.location,
                name,
                f"kind {metadata.get('kind')!r}, schema version {version!r}; this mclabel reads "
                f"{shard_kind!r}, version {SCHEMA_VERSION}",
                "Make the run again with this version, in another folder",
            )
        if check == "none":
            raise make_damaged_file_error(
                store, name, "damaged, or rewritten by another program: it has no digest"
            )
        if (reason := describe_oversized_table(pa.py_buffer(content), file.metadata)) is not None:
            raise ValueError(reason)
        table = _select_columns_of(_SCHEMAS[shard_kind], read_whole_table(file))
    except DamagedFile:
        raise
    except (
        *(pa.ArrowException, OSError, ValueError, TypeError, LookupError),
        *(AttributeError, RecursionError),
    ) as error:
        raise make_damaged_file_error(
            store, name, f"damaged, or not a {shard_kind} shard ({error})"
        ) from error
    return metadata, table


def _encode_shard(table: pa.Table, metadata: Mapping[str, Any]) -> bytes:
    stamp = json.dumps({"schema_version": SCHEMA_VERSION, **metadata}).encode()
    table = table.replace_schema_metadata({METADATA_KEY: stamp})
    small = table.nbytes < _SMALL_BYTES
    return encode_parquet_with_digest(
        table,
        compression="none" if small else "zstd",
        use_dictionary=not small,
        write_statistics=not small,
    )


def _read_metadata(file: pq.ParquetFile) -> dict[str, Any]:
    raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    metadata = json.loads(raw) if raw else {}
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata must be an object, is a {type(metadata).__name__}")
    if metadata.get("kind") == "labels" and "rollouts" not in metadata:
        raise ValueError("its metadata does not name its rollouts")
    return metadata


def _select_columns_of(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """Return a table with the columns of a schema, in the order of the schema."""
    for field in schema:
        if field.name not in table.column_names:
            raise ValueError(f"no column {field.name}")
        if not table.schema.field(field.name).type.equals(field.type):
            raise ValueError(f"column {field.name} must be {field.type}")
    return table.select(schema.names)


_COUNTS = tuple(f"num_{outcome}" for outcome in Outcome)
_MAX_NAMED = 3


def find_count_disagreements(labels: pa.Table, rollouts: pa.Table) -> Iterator[str]:
    """Yield a description of each disagreement between a labels shard and its rollouts.

    A step's counts are the numbers of rollouts from the prefix that ends with the step, for all
    completers together and for each completer. Rollouts from earlier prefixes that pass through
    this prefix (column `through`) are used by the estimator, but are not in these counts. A last
    step has no rollouts.

    Args:
        labels: rows of one labels shard.
        rollouts: rows of the rollouts shard that the labels shard names.
    """
    counted = _count_rollouts(rollouts)
    differing, labeled = [], set()
    for (identity, completer), counts in chain(
        _iter_label_counts(labels), _iter_completer_counts(labels)
    ):
        labeled.add(identity)
        if counts != counted.get((identity, completer), (0,) * len(counts)):
            differing.append(identity)
    if differing:
        yield _format_count_and_names(
            "prefixes have counts that differ from their rollouts", differing
        )
    place = ["prefix_id", "completer", "index"]
    twice = rollouts.num_rows - len(rollouts.group_by(place).aggregate([]))
    if twice:
        yield f"{twice:,} rollouts occur twice"
    strange = set(pc.unique(rollouts["problem_id"]).to_pylist()) - set(
        pc.unique(labels["problem_id"]).to_pylist()
    )
    if strange:
        yield _format_count_and_names("problems have rollouts but no labels", sorted(strange))
    through = pc.unique(rollouts["through"].combine_chunks().flatten()).to_pylist()
    if unlabeled := set(through) - labeled:
        yield _format_count_and_names(
            "prefixes that rollouts went through have no labels", sorted(unlabeled)
        )


_CountsKey = tuple[str, str | None]
"""Pair of a prefix id and the name of a completer (a model that samples rollouts); None instead of
a name stands for all completers together."""


def _count_rollouts(rollouts: pa.Table) -> Mapping[_CountsKey, tuple[int, ...]]:
    """Return, by `_CountsKey`, the number of rollouts of each outcome, and last the number of their
    tokens.
    """
    counts_of: dict[_CountsKey, list[int]] = {}
    place = {outcome.value: number for number, outcome in enumerate(Outcome)}
    sums = rollouts.group_by(["prefix_id", "completer", "outcome"]).aggregate(
        [("num_tokens", "count"), ("num_tokens", "sum")]
    )
    for row in sums.to_pylist():
        for completer in (row["completer"], None):
            counts = counts_of.setdefault((row["prefix_id"], completer), [0] * (len(place) + 1))
            counts[place[row["outcome"]]] += row["num_tokens_count"]
            counts[-1] += row["num_tokens_sum"]
    return {whose: tuple(counts) for whose, counts in counts_of.items()}


def _iter_label_counts(labels: pa.Table) -> Iterator[tuple[_CountsKey, tuple[int, ...]]]:
    """Yield the recorded counts of each problem before its first step, and of each step except the
    last.
    """
    for problem, root in zip(
        labels["problem_id"].to_pylist(), labels["root"].to_pylist(), strict=True
    ):
        yield (prefix_id(problem, ()), None), _to_counts_tuple(root)
    steps = labels["steps"].combine_chunks()
    lengths = pc.list_value_length(steps).to_numpy(zero_copy_only=False)
    last = np.cumsum(lengths[lengths > 0]) - 1
    inner = np.ones(int(lengths.sum()), bool)
    inner[last] = False
    flat = steps.flatten().filter(pa.array(inner))
    columns = [flat.field(name).to_pylist() for name in ("prefix_id", *_COUNTS, "num_tokens")]
    for identity, *counts in zip(*columns, strict=True):
        yield (identity, None), tuple(counts)


def _iter_completer_counts(labels: pa.Table) -> Iterator[tuple[_CountsKey, tuple[int, ...]]]:
    """Yield the counts of `_iter_label_counts` for each completer; nothing for rows that record no
    completers.
    """
    steps = labels["steps"].combine_chunks()
    names = pa.ListArray.from_arrays(steps.offsets, steps.values.field("prefix_id")).to_pylist()
    whole = zip(
        labels["problem_id"].to_pylist(), names, labels["completers"].to_pylist(), strict=True
    )
    for problem, prefixes, completers in whole:
        for completer in completers:
            yield (prefix_id(problem, ()), completer["name"]), _to_counts_tuple(completer["root"])
            for identity, counts in zip(prefixes[:-1], completer["steps"], strict=False):
                yield (identity, completer["name"]), _to_counts_tuple(counts)


def _to_counts_tuple(counts: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(counts[name] for name in (*_COUNTS, "num_tokens"))


def _format_count_and_names(fault: str, names: list[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    return f"{len(names):,} {fault} ({listed})"
