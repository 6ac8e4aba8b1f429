"""A run's labels and rollouts as plain Parquet files, for whoever reads Parquet and not mclabel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.core.errors import ConfigError
from mclabel.data.exchange.job import CARD, label_sources, push_folder
from mclabel.run.outputs import EXPORT, check_free
from mclabel.run.shards.labels import label_tables, rollout_tables
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.store import Store

FILE_BYTES = 1 << 27
"""Of a table in memory, about, from which on another file is begun."""
_GROUP_ROWS = 10_000
_PARTIAL = ".partial"


@dataclass(frozen=True, kw_only=True)
class TablesReport:
    """What an export of tables wrote."""

    path: str
    num_labels: int
    num_rollouts: int
    files: tuple[str, ...]
    url: str | None

    def lines(self) -> Iterator[str]:
        """Lines to print on a terminal."""
        yield (
            f"{self.num_labels:,} solutions and {self.num_rollouts:,} rollouts written to "
            f"{self.path} ({len(self.files)} files)"
        )
        if self.url is not None:
            yield f"uploaded to {self.url}"


def export_tables(
    run: str, out: str, *, push_to_hub: str | None = None, file_bytes: int = FILE_BYTES
) -> TablesReport:
    """Write `labels-NUMBER.parquet`, `rollouts-NUMBER.parquet` and a data set card into a folder.

    Shards are read one after another, also of a run that is being compacted.

    Args:
        run: folder or URL of labels.
        out: folder, made if it is missing; what it holds of an earlier export is replaced.
        push_to_hub: data set of the Hugging Face Hub that the folder is uploaded to.
        file_bytes: of a table in memory, from which on another file is begun.

    Raises:
        ShardError: no run, or a damaged shard.
        ConfigError: the folder cannot be written, or the upload was refused.
    """
    check_free(out, EXPORT, "-o ")
    store, folder = Store(run), Path(out)
    labels = _Tables(folder, "labels", LABELS_SCHEMA, file_bytes)
    rollouts = _Tables(folder, "rollouts", ROLLOUTS_SCHEMA, file_bytes)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        labels.write(table for _, table in label_tables(store))
        rollouts.write(rollout_tables(store))
        files = (*labels.finish(), *rollouts.finish())
        card = _card(run, labels.num_rows, rollouts.num_rows)
        (folder / CARD).write_text(card, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"-o {out}: cannot be written ({error.strerror}). Give another folder"
        ) from error
    url = None if push_to_hub is None else push_folder(folder, push_to_hub, [*files, CARD])
    return TablesReport(
        path=str(folder),
        num_labels=labels.num_rows,
        num_rollouts=rollouts.num_rows,
        files=files,
        url=url,
    )


class _Tables:
    """Files of one kind of rows, under names of their own until all are whole."""

    def __init__(self, folder: Path, kind: str, schema: pa.Schema, file_bytes: int) -> None:
        self._folder, self._kind, self._schema = folder, kind, schema
        self._file_bytes = file_bytes
        self._names: list[str] = []
        self.num_rows = 0

    def write(self, tables: Iterable[pa.Table]) -> None:
        waiting: list[pa.Table] = []
        size = 0
        for table in tables:
            waiting.append(table.select(self._schema.names).replace_schema_metadata(None))
            size += table.nbytes
            if size >= self._file_bytes:
                self._write_file(waiting)
                waiting, size = [], 0
        if waiting:
            self._write_file(waiting)

    def _write_file(self, tables: list[pa.Table]) -> None:
        table = pa.concat_tables(tables).cast(self._schema)
        if table.num_rows:
            self._names.append(f"{self._kind}-{len(self._names):05d}.parquet")
            path = self._folder / (self._names[-1] + _PARTIAL)
            pq.write_table(table, path, compression="zstd", row_group_size=_GROUP_ROWS)
            self.num_rows += table.num_rows

    def finish(self) -> tuple[str, ...]:
        """Give the files their names, in place of those of an earlier export."""
        for path in self._folder.glob(f"{self._kind}-*.parquet"):
            path.unlink()
        for name in self._names:
            (self._folder / (name + _PARTIAL)).rename(self._folder / name)
        return tuple(self._names)


def _card(run: str, num_labels: int, num_rollouts: int) -> str:
    rollouts = "- config_name: rollouts\n  data_files: rollouts-*.parquet\n" if num_rollouts else ""
    sources = label_sources(run)
    return f"""---
tags: [process-reward-model, mclabel]
configs:
- config_name: labels
  data_files: labels-*.parquet
  default: true
{rollouts}---
{num_labels} solutions with a label for every step, and the {num_rollouts} rollouts that the labels
rest on, made by mclabel. Every column is explained in its docs/formats.md.

How steps came to their labels: {sources}. A label from rollouts shows whether the labelling
policy still reaches the right answer from a step on; it is not a proof that the step is right.
"""
