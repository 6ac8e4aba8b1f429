"""A large labelling run, made of a small real one: its rows again and again under fresh ids."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.run.shards.shard import METADATA_KEY, write_rollouts, write_shard
from mclabel.run.shards.store import Store


def replicate(source: Path, out: Path, num_solutions: int) -> int:
    """Write a run of at least so many solutions; the number written.

    Every copy has ids of its own, and texts that differ from those of other copies, so that
    nothing is stored or found once for many. Shards are as large as those of the source.

    Args:
        source: a labelling run with rollouts.
        out: folder of the new run.
        num_solutions: to reach.
    """
    (out / "labels").mkdir(parents=True)
    (out / "rollouts").mkdir()
    (out / "run.json").write_bytes((source / "run.json").read_bytes())
    shards = [_Shard(source, path) for path in sorted((source / "labels").glob("*.parquet"))]
    written = copy = 0
    while written < num_solutions:
        for shard in shards:
            if written < num_solutions:
                written += shard.write(out, copy)
        copy += 1
    return written


class _Shard:
    """A block of the source: its labels and its rollouts."""

    def __init__(self, source: Path, path: Path) -> None:
        self._labels = pq.read_table(path)
        self._metadata: dict[str, Any] = json.loads(self._labels.schema.metadata[METADATA_KEY])
        self._rollouts = pq.read_table(source / self._metadata["rollouts"])

    def write(self, out: Path, copy: int) -> int:
        block = f"{copy:06x}{self._metadata['block'][6:]}"
        name = f"rollouts/{block}.{self._metadata['attempt']}.parquet"
        labels = _renamed(self._labels, ("problem_id", "solution_id"), copy)
        texts = [f"{text} (variant {copy})" for text in labels.column("problem").to_pylist()]
        labels = _with(labels, "problem", pa.array(texts, pa.string()))
        steps = labels.column("steps").combine_chunks()
        fields = [
            _suffixed(steps.values.field(f.name), copy)
            if f.name == "prefix_id"
            else steps.values.field(f.name)
            for f in steps.type.value_type
        ]
        values = pa.StructArray.from_arrays(fields, fields=list(steps.type.value_type))
        labels = _with(labels, "steps", pa.ListArray.from_arrays(steps.offsets, values))
        rollouts = _renamed(self._rollouts, ("problem_id", "prefix_id"), copy)
        changed = {"block": block, "rollouts": name}
        store = Store(str(out))
        metadata = {k: v for k, v in self._metadata.items() if k != "schema_version"}
        digest = write_rollouts(store, name, rollouts, {**metadata, "block": block})
        changed["rollouts_digest"] = digest
        write_shard(store, f"labels/{block}.parquet", labels, metadata | changed)
        return int(labels.num_rows)


def _renamed(table: pa.Table, columns: tuple[str, ...], copy: int) -> pa.Table:
    for name in columns:
        table = _with(table, name, _suffixed(table.column(name), copy))
    return table


def _suffixed(column: Any, copy: int) -> pa.Array:
    return pa.array([f"{text}-{copy:x}" for text in column.to_pylist()], pa.string())


def _with(table: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = table.schema.get_field_index(name)
    return table.set_column(at, table.schema.field(at), column)
