"""One shard as a file: its rows, its metadata, and the checks before anything is made of it.

The metadata is JSON under the key `mclabel`; every shard carries its `digest`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.errors import DamagedFile
from mclabel.run.parquet import table_too_large, whole_table
from mclabel.run.shards.digest import check_parquet, is_cut_off, parquet_digest, parquet_with_digest
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA, SCHEMA_VERSION
from mclabel.run.shards.store import CHANGED, CUT_OFF, Store, damaged

METADATA_KEY = b"mclabel"
_SMALL_BYTES = 1 << 15
"""Bytes under which a file is mostly its schema: compression and statistics only take time."""
TAIL = 8
"""Bytes that end a Parquet file: the footer's length and a magic number."""

_SCHEMAS = {"labels": LABELS_SCHEMA, "rollouts": ROLLOUTS_SCHEMA}


def read_shard(store: Store, name: str, kind: str) -> tuple[dict[str, Any], pa.Table]:
    """A shard's metadata and table.

    Raises:
        DamagedFile: it is missing, damaged, of another kind or another schema version.
    """
    content = store.read(name)
    if content is None:
        raise damaged(store, name, "missing, though a labels shard names it")
    return open_shard(store, name, content, kind)


def write_shard(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> bool:
    """Create a shard; False if there is one of that name."""
    return store.create(name, _parquet(table, metadata))


def write_rollouts(store: Store, name: str, table: pa.Table, metadata: Mapping[str, Any]) -> str:
    """Create a rollouts shard; its digest, which the labels shard is to name."""
    content = _parquet(table, {**metadata, "kind": "rollouts"})
    store.create(name, content)
    digest = parquet_digest(content)
    assert digest is not None
    return digest


def open_shard(
    store: Store, name: str, content: bytes, kind: str
) -> tuple[dict[str, Any], pa.Table]:
    """Metadata and table of a shard's content.

    Args:
        store: the run's, for messages.
        name: of the file, for messages.
        content: of the file.
        kind: `labels` or `rollouts`.

    Raises:
        DamagedFile: it is damaged, of another kind or another schema version.
    """
    check = check_parquet(content)
    if check == "damaged":
        raise damaged(store, name, CUT_OFF if is_cut_off(content[-TAIL:]) else CHANGED)
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        metadata = _metadata(file)
        version = metadata.get("schema_version")
        if metadata.get("kind") != kind or version != SCHEMA_VERSION:
            raise DamagedFile(
                store.location,
                name,
                f"kind {metadata.get('kind')!r}, schema version {version!r}; this mclabel reads "
                f"{kind!r}, version {SCHEMA_VERSION}",
                "Make the run again with this version, in another folder",
            )
        if check == "none":
            raise damaged(store, name, "damaged, or rewritten by another program: it has no digest")
        if (reason := table_too_large(pa.py_buffer(content), file.metadata)) is not None:
            raise ValueError(reason)
        table = _with_columns_of(_SCHEMAS[kind], whole_table(file))
    except DamagedFile:
        raise
    except (
        *(pa.ArrowException, OSError, ValueError, TypeError, LookupError),
        *(AttributeError, RecursionError),
    ) as error:
        raise damaged(store, name, f"damaged, or not a {kind} shard ({error})") from error
    return metadata, table


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


def _metadata(file: pq.ParquetFile) -> dict[str, Any]:
    raw = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
    metadata = json.loads(raw) if raw else {}
    if not isinstance(metadata, dict):
        raise ValueError(f"metadata must be an object, is a {type(metadata).__name__}")
    if metadata.get("kind") == "labels" and "rollouts" not in metadata:
        raise ValueError("its metadata does not name its rollouts")
    return metadata


def _with_columns_of(schema: pa.Schema, table: pa.Table) -> pa.Table:
    """The columns of the schema, in its order."""
    for field in schema:
        if field.name not in table.column_names:
            raise ValueError(f"no column {field.name}")
        if not table.schema.field(field.name).type.equals(field.type):
            raise ValueError(f"column {field.name} must be {field.type}")
    return table.select(schema.names)
