"""Label and rollout shards: their schemas, the commit rule, and reading them back.

A run's folder holds

    run.json                              the semantic configuration, created once
    labels/BLOCK.parquet                  one row a labelled solution
    rollouts/BLOCK.ATTEMPT.parquet        one row a rollout, with its text

A block's rollouts are written first, under the name of the attempt; then its labels are
created exclusively, with the rollouts file of their own attempt named in the metadata. So of
several attempts at a block one wins as a whole, whatever is killed and when. Readers follow
the labels; a rollouts file that none names belongs to an attempt that lost.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from mclabel.data.store import Store
from mclabel.errors import ShardError
from mclabel.records import (
    Counts,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    Step,
    StepLabel,
)

SCHEMA_VERSION = 2
METADATA_KEY = b"mclabel"

_COUNTS = pa.struct(
    [
        pa.field("num_right", pa.int32(), nullable=False),
        pa.field("num_wrong", pa.int32(), nullable=False),
        pa.field("num_truncated", pa.int32(), nullable=False),
        pa.field("num_ungraded", pa.int32(), nullable=False),
        pa.field("num_tokens", pa.int64(), nullable=False),
    ]
)

_STEP = pa.struct(
    [
        pa.field("text", pa.string(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("prefix_id", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("hard", pa.bool_()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("mean", pa.float64()),
        *_COUNTS,
    ]
)

LABELS_SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("meta", pa.string(), nullable=False),
        pa.field("solution_id", pa.string(), nullable=False),
        pa.field("sample_index", pa.int32(), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("solution", pa.string(), nullable=False),
        pa.field("prompt_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("solution_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("prediction", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("first_error", pa.int32()),
        pa.field("steps", pa.list_(_STEP), nullable=False),
        pa.field("root", _COUNTS, nullable=False),
        pa.field("siblings", _COUNTS, nullable=False),
        pa.field("root_value", pa.float64()),
        pa.field("posterior", pa.list_(pa.float64())),
        pa.field("priors", pa.string()),
    ]
)
"""One row a labelled solution; the columns are explained in docs/formats.md."""

ROLLOUTS_SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("prefix_id", pa.string(), nullable=False),
        pa.field("index", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("num_tokens", pa.int32(), nullable=False),
        pa.field("finish_reason", pa.string(), nullable=False),
        pa.field("prediction", pa.string()),
        pa.field("outcome", pa.string(), nullable=False),
    ]
)
"""One row a rollout."""


def commit_block(
    store: Store,
    block_id: str,
    attempt: str,
    labeled: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout] | None,
    provenance: Mapping[str, Any],
) -> bool:
    """Write a block's shards; False if another attempt had committed it before.

    Args:
        store: the run's.
        block_id: names the labels shard.
        attempt: unique to this attempt at the block.
        labeled: rows of the labels shard.
        rollouts: rows of the rollouts shard, None to keep none.
        provenance: goes into the shards' metadata, JSON-serialisable.
    """
    rollouts_name = None
    if rollouts is not None:
        rollouts_name = f"rollouts/{block_id}.{attempt}.parquet"
        rows = [_rollout_row(r) for r in rollouts]
        metadata = {**provenance, "kind": "rollouts", "block": block_id, "attempt": attempt}
        store.create(rollouts_name, _parquet(rows, ROLLOUTS_SCHEMA, metadata))
    metadata = {
        **provenance,
        "kind": "labels",
        "block": block_id,
        "attempt": attempt,
        "rollouts": rollouts_name,
    }
    content = _parquet([_label_row(row) for row in labeled], LABELS_SCHEMA, metadata)
    won = store.create(f"labels/{block_id}.parquet", content)
    if not won and rollouts_name is not None:
        store.delete(rollouts_name)
    return won


def committed_blocks(store: Store) -> set[str]:
    """Ids of the blocks whose labels shard exists."""
    names = _labels_names(store)
    return {name.removeprefix("labels/").removesuffix(".parquet") for name in names}


def read_labels(store: Store) -> Iterator[LabeledSolution]:
    """Every labelled solution of a run, shard by shard in the order of block ids.

    Raises:
        ShardError: no labels, a torn shard, or one of another schema version.
    """
    for _, table in label_tables(store):
        for row in table.to_pylist():
            yield _labeled(row)


def label_tables(store: Store) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Metadata and table of each labels shard."""
    names = _labels_names(store)
    if not names:
        raise ShardError(
            f"{store.location}: holds no labels/*.parquet. Give the `out` of a labelling job"
        )
    for name in names:
        yield read_shard(store, name, "labels")


def read_shard(
    store: Store, name: str, kind: Literal["labels", "rollouts"]
) -> tuple[dict[str, Any], pa.Table]:
    """Metadata and table of one shard.

    Args:
        store: the run's.
        name: of the file, as `labels/BLOCK.parquet` or as a labels shard's metadata name it.
        kind: what it must hold.

    Raises:
        ShardError: it is missing, torn, or of another kind or schema version.
    """
    return _metadata(store, name, kind), _table(store, name)


def read_rollouts(store: Store) -> Iterator[Rollout]:
    """The rollouts that the committed labels rest on, block by block."""
    for labels in _labels_names(store):
        name = _metadata(store, labels, "labels")["rollouts"]
        if name is None:
            continue
        _metadata(store, name, "rollouts")
        for row in _table(store, name).to_pylist():
            yield Rollout(**{**row, "outcome": Outcome(row["outcome"])})


def delete_losers(store: Store) -> int:
    """Remove rollouts files that no labels shard names; the number removed.

    Only for a run in which no attempt is under way.
    """
    kept = {_metadata(store, name, "labels")["rollouts"] for name in _labels_names(store)}
    losers = [name for name in store.names("rollouts") if name not in kept]
    for name in losers:
        store.delete(name)
    return len(losers)


def _parquet(rows: list[dict[str, Any]], schema: pa.Schema, metadata: Mapping[str, Any]) -> bytes:
    stamped = schema.with_metadata(
        {METADATA_KEY: json.dumps({"schema_version": SCHEMA_VERSION, **metadata}).encode()}
    )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=stamped), sink, compression="zstd")
    return sink.getvalue()


def _labels_names(store: Store) -> list[str]:
    return [name for name in store.names("labels") if name.endswith(".parquet")]


def _metadata(store: Store, name: str, kind: str) -> dict[str, Any]:
    """What a shard says of itself; refuses shards of another kind or version."""
    content = _content(store, name)
    try:
        raw = (pq.read_schema(io.BytesIO(content)).metadata or {}).get(METADATA_KEY)
    except pa.ArrowException as error:
        raise ShardError(f"{store.location}/{name}: torn or no Parquet file ({error})") from error
    metadata: dict[str, Any] = json.loads(raw) if raw else {}
    if metadata.get("kind") != kind or metadata.get("schema_version") != SCHEMA_VERSION:
        raise ShardError(
            f"{store.location}/{name}: kind {metadata.get('kind')!r}, schema version "
            f"{metadata.get('schema_version')!r}; this mclabel reads {kind!r}, version "
            f"{SCHEMA_VERSION}"
        )
    return metadata


def _table(store: Store, name: str) -> pa.Table:
    try:
        return pq.read_table(io.BytesIO(_content(store, name)))
    except pa.ArrowException as error:
        raise ShardError(f"{store.location}/{name}: torn or no Parquet file ({error})") from error


def _content(store: Store, name: str) -> bytes:
    content = store.read(name)
    if content is None:
        raise ShardError(f"{store.location}/{name}: missing, though a labels shard names it")
    return content


def _counts_row(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS.names}


def _label_row(row: LabeledSolution) -> dict[str, Any]:
    steps = zip(row.solution.steps, row.steps, strict=True)
    return {
        "problem_id": row.problem.id,
        "problem": row.problem.text,
        "answer": row.problem.answer,
        "meta": json.dumps(dict(row.problem.meta), sort_keys=True),
        "solution_id": row.solution.id,
        "sample_index": row.solution.sample_index,
        "origin": row.solution.origin,
        "solution": row.solution.text,
        "prompt_ids": row.prompt_ids,
        "solution_ids": row.solution.ids,
        "finish_reason": row.solution.finish_reason,
        "prediction": row.solution.prediction,
        "outcome": row.solution.outcome,
        "first_error": row.first_error,
        "steps": [
            {
                "text": step.text,
                "end": step.end,
                "prefix_id": label.prefix_id,
                "rule": label.rule,
                "hard": label.hard,
                "value": label.value,
                "low": label.low,
                "high": label.high,
                "mean": label.mean,
                **_counts_row(label.counts),
            }
            for step, label in steps
        ],
        "root": _counts_row(row.root),
        "siblings": _counts_row(row.siblings),
        "root_value": row.root_value,
        "posterior": row.posterior,
        "priors": row.priors,
    }


def _rollout_row(rollout: Rollout) -> dict[str, Any]:
    return {name: getattr(rollout, name) for name in ROLLOUTS_SCHEMA.names}


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in _COUNTS.names})


def _labeled(row: Mapping[str, Any]) -> LabeledSolution:
    steps: Iterable[Mapping[str, Any]] = row["steps"]
    return LabeledSolution(
        problem=Problem(
            id=row["problem_id"],
            text=row["problem"],
            answer=row["answer"],
            meta=json.loads(row["meta"]),
        ),
        solution=Solution(
            id=row["solution_id"],
            problem_id=row["problem_id"],
            sample_index=row["sample_index"],
            text=row["solution"],
            ids=tuple(row["solution_ids"]),
            steps=tuple(Step(text=s["text"], end=s["end"]) for s in steps),
            finish_reason=row["finish_reason"],
            origin=row["origin"],
            prediction=row["prediction"],
            outcome=Outcome(row["outcome"]),
        ),
        prompt_ids=tuple(row["prompt_ids"]),
        steps=tuple(
            StepLabel(
                prefix_id=s["prefix_id"],
                counts=_counts(s),
                rule=s["rule"],
                hard=s["hard"],
                value=s["value"],
                low=s["low"],
                high=s["high"],
                mean=s["mean"],
            )
            for s in steps
        ),
        first_error=row["first_error"],
        root=_counts(row["root"]),
        siblings=_counts(row["siblings"]),
        root_value=row["root_value"],
        posterior=None if row["posterior"] is None else tuple(row["posterior"]),
        priors=row["priors"],
    )
