"""A run's tables as data sets in memory-mapped Arrow files."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import datasets
import pyarrow as pa

from mclabel.data.shards.labels import label_tables, rollout_tables
from mclabel.data.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.data.shards.store import Store

_BATCH_ROWS = 1000


def labels_dataset(run: str, cache_dir: str | Path | None) -> datasets.Dataset:
    """All labels of a run."""
    tables = (table for _, table in label_tables(Store(run)))
    return _mapped(tables, LABELS_SCHEMA, cache_dir)


def rollouts_dataset(run: str, cache_dir: str | Path | None) -> datasets.Dataset:
    """All rollouts that its labels rest on."""
    return _mapped(rollout_tables(Store(run)), ROLLOUTS_SCHEMA, cache_dir)


def _mapped(
    tables: Iterable[pa.Table], schema: pa.Schema, cache_dir: str | Path | None
) -> datasets.Dataset:
    schema = datasets.Features.from_arrow_schema(schema).arrow_schema  # which need not be cast
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE)
    folder.mkdir(parents=True, exist_ok=True)
    handle = tempfile.NamedTemporaryFile(  # noqa: SIM115
        dir=_folder(str(folder)).name, suffix=".arrow", delete=False
    )
    with handle as file, pa.ipc.new_stream(file, schema) as writer:
        for table in tables:
            plain = table.select(schema.names).replace_schema_metadata(None)
            writer.write_table(plain.cast(schema), max_chunksize=_BATCH_ROWS)
    return datasets.Dataset.from_file(handle.name)


@cache
def _folder(parent: str) -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="mclabel-", dir=parent)
