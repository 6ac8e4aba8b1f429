"""Loads the labels and rollouts of a run as Hugging Face data sets or as records.

These functions read a run correctly at any time. If problems of the run were changed or removed,
`labels/*.parquet` also holds labels of the former problems, which these functions leave out. While
the job is running, `rollouts/*.parquet` includes rollouts of unfinished and killed attempts.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from os import PathLike
from pathlib import Path

import datasets
import pyarrow as pa

from mclabel.core.records import LabeledSolution
from mclabel.data.given import require_path_or_url
from mclabel.run.shards import labels
from mclabel.run.shards.labels import iter_label_tables, iter_rollout_tables
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.store import Store


def load_labels(
    run: str | PathLike[str], *, cache_dir: str | PathLike[str] | None = None
) -> datasets.Dataset:
    """Load the labels of a run, one row per solution; docs/formats.md explains the columns.

    Shards are copied one after another to a memory-mapped file, so little memory is needed. The
    file is removed when the process exits.

    Args:
        run: folder or URL of a run. While its job is running, the committed labels are loaded.
        cache_dir: folder for the memory-mapped file; None for the cache of `datasets`.

    Raises:
        ConfigError: `run` is not a path or URL.
        ShardError: the run is missing, a shard is damaged, or a finished run has lost a shard.
    """
    return _load_memory_mapped(
        run,
        lambda store: (table for _, table in iter_label_tables(store)),
        LABELS_SCHEMA,
        cache_dir,
    )


def load_rollouts(
    run: str | PathLike[str], *, cache_dir: str | PathLike[str] | None = None
) -> datasets.Dataset:
    """Load the rollouts from which the labels of a run were computed, one row per rollout.

    A run with `keep_rollouts=false` has no rows. The arguments and errors are those of
    `load_labels`.
    """
    return _load_memory_mapped(run, iter_rollout_tables, ROLLOUTS_SCHEMA, cache_dir)


def read_labels(run: str | PathLike[str]) -> Iterator[LabeledSolution]:
    """Yield every labelled solution of a run, in the same order each time.

    Args:
        run: folder or URL of a run. While its job is running, the committed labels are read.

    Raises:
        ConfigError: `run` is not a path or URL.
        ShardError: the run is missing, a shard is damaged, or a finished run has lost a shard.
    """
    return labels.read_labels(Store(require_path_or_url(run, "run")))


_BATCH_ROWS = 1000
"""Maximum number of rows in a batch of the memory-mapped file."""


def _load_memory_mapped(
    run: str | PathLike[str],
    read: Callable[[Store], Iterable[pa.Table]],
    schema: pa.Schema,
    cache_dir: str | PathLike[str] | None,
) -> datasets.Dataset:
    place = require_path_or_url(run, "run")
    schema = datasets.Features.from_arrow_schema(
        schema
    ).arrow_schema  # the schema that `datasets` loads without a cast
    folder = Path(
        datasets.config.HF_DATASETS_CACHE
        if cache_dir is None
        else require_path_or_url(cache_dir, "cache_dir")
    )
    tables = read(Store(place))
    folder.mkdir(parents=True, exist_ok=True)
    handle = tempfile.NamedTemporaryFile(  # noqa: SIM115
        dir=_make_temporary_folder(str(folder)).name, suffix=".arrow", delete=False
    )
    with handle as file, pa.ipc.new_stream(file, schema) as writer:
        for table in tables:
            plain = table.select(schema.names).replace_schema_metadata(None)
            writer.write_table(plain.cast(schema), max_chunksize=_BATCH_ROWS)
    return datasets.Dataset.from_file(handle.name)


@cache
def _make_temporary_folder(parent: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder that is removed when the process exits."""
    return tempfile.TemporaryDirectory(prefix="mclabel-", dir=parent)
