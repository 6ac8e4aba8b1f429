"""The schemas of label and rollout shards, and records as their rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from mclabel.core.records import (
    CompleterCounts,
    Consensus,
    Counts,
    Flag,
    LabeledSolution,
    Outcome,
    Problem,
    Rollout,
    Solution,
    SourceOpinion,
    Step,
    StepLabel,
)

SCHEMA_VERSION = 1
"""The only version that is read. It grows whenever a column changes."""

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
        pa.field("source", pa.string(), nullable=False),
        pa.field("hard", pa.bool_()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        pa.field("mean", pa.float64()),
        pa.field("state", pa.string()),
        pa.field("committed", pa.string()),
        *_COUNTS,
    ]
)

_COMPLETER = pa.struct(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("cost", pa.float64(), nullable=False),
        pa.field("root", _COUNTS, nullable=False),
        pa.field("steps", pa.list_(_COUNTS), nullable=False),
    ]
)

FLAG = pa.struct(
    [
        pa.field("step", pa.int32(), nullable=False),
        pa.field("start", pa.int32(), nullable=False),
        pa.field("end", pa.int32(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)

_OPINION = pa.struct(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("claim", pa.string(), nullable=False),
        pa.field("is_known", pa.bool_(), nullable=False),
        pa.field("first_error", pa.int32()),
        pa.field("flags", pa.list_(FLAG), nullable=False),
    ]
)

_CONSENSUS = pa.struct(
    [
        pa.field("rule", pa.string()),
        pa.field("kept", pa.bool_()),
        pa.field("opinions", pa.list_(_OPINION)),
    ]
)
"""Its fields are null only together with itself: pyarrow casts no null into a struct of others."""

LABELS_SCHEMA = pa.schema(
    [
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("problem", pa.string(), nullable=False),
        pa.field("answer", pa.string(), nullable=False),
        pa.field("answer_is_json", pa.bool_(), nullable=False),
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
        pa.field("min_gain", pa.float64()),
        pa.field("num_sampled", pa.int32(), nullable=False),
        pa.field("num_sampled_right", pa.int32(), nullable=False),
        pa.field("chosen_by_outcome", pa.bool_(), nullable=False),
        pa.field("selection_probability", pa.float64()),
        pa.field("num_missing", pa.int32()),
        pa.field("completers", pa.list_(_COMPLETER), nullable=False),
        pa.field("values_of", pa.string(), nullable=False),
        pa.field("consensus", _CONSENSUS),
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
        pa.field("reason", pa.string()),
        pa.field("step_ends", pa.list_(pa.int32())),
        pa.field("through", pa.list_(pa.string())),
        pa.field("completer", pa.string(), nullable=False),
    ]
)
"""One row a rollout."""


def _counts_row(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in _COUNTS.names}


def label_row(row: LabeledSolution) -> dict[str, Any]:
    """Return a labelled solution as a row of a labels shard."""
    steps = zip(row.solution.steps, row.steps, strict=True)
    return {
        "problem_id": row.problem.id,
        "problem": row.problem.text,
        "answer": row.problem.answer,
        "answer_is_json": row.problem.answer_is_json,
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
                "source": label.source,
                "hard": label.hard,
                "value": label.value,
                "low": label.low,
                "high": label.high,
                "mean": label.mean,
                "state": label.state,
                "committed": label.committed,
                **_counts_row(label.counts),
            }
            for step, label in steps
        ],
        "root": _counts_row(row.root),
        "siblings": _counts_row(row.siblings),
        "root_value": row.root_value,
        "posterior": row.posterior,
        "priors": row.priors,
        "min_gain": row.min_gain,
        "num_sampled": row.num_sampled,
        "num_sampled_right": row.num_sampled_right,
        "chosen_by_outcome": row.chosen_by_outcome,
        "selection_probability": row.selection_probability,
        "num_missing": row.num_missing,
        "completers": [
            {
                "name": completer.name,
                "cost": completer.cost,
                "root": _counts_row(completer.root),
                "steps": [_counts_row(counts) for counts in completer.steps],
            }
            for completer in row.completers
        ],
        "values_of": row.values_of,
        "consensus": None if row.consensus is None else asdict(row.consensus),
    }


def rollout_row(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as a row of a rollouts shard."""
    return {name: getattr(rollout, name) for name in ROLLOUTS_SCHEMA.names}


def _counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in _COUNTS.names})


def problem_of(row: Mapping[str, Any]) -> Problem:
    """Return the problem in a row of a labels shard."""
    return Problem(
        id=row["problem_id"],
        text=row["problem"],
        answer=row["answer"],
        answer_is_json=row["answer_is_json"],
        meta=json.loads(row["meta"]),
    )


def labeled_solution(row: Mapping[str, Any]) -> LabeledSolution:
    """Return the labelled solution that a row of a labels shard holds."""
    steps: Iterable[Mapping[str, Any]] = row["steps"]
    return LabeledSolution(
        problem=problem_of(row),
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
                source=s["source"],
                hard=s["hard"],
                value=s["value"],
                low=s["low"],
                high=s["high"],
                mean=s["mean"],
                state=s["state"],
                committed=None if s["committed"] is None else Outcome(s["committed"]),
            )
            for s in steps
        ),
        first_error=row["first_error"],
        root=_counts(row["root"]),
        siblings=_counts(row["siblings"]),
        root_value=row["root_value"],
        posterior=_tuple(row["posterior"]),
        priors=row["priors"],
        min_gain=row["min_gain"],
        num_sampled=row["num_sampled"],
        num_sampled_right=row["num_sampled_right"],
        chosen_by_outcome=row["chosen_by_outcome"],
        selection_probability=row["selection_probability"],
        num_missing=row["num_missing"],
        completers=tuple(
            CompleterCounts(
                name=completer["name"],
                cost=completer["cost"],
                root=_counts(completer["root"]),
                steps=tuple(_counts(counts) for counts in completer["steps"]),
            )
            for completer in row["completers"]
        ),
        values_of=row["values_of"],
        consensus=consensus_of(row["consensus"]),
    )


def consensus_of(row: Mapping[str, Any] | None) -> Consensus | None:
    """Return the consensus that the column of a labels shard holds."""
    if row is None:
        return None
    opinions = [
        SourceOpinion(**{**opinion, "flags": tuple(Flag(**flag) for flag in opinion["flags"])})
        for opinion in row["opinions"]
    ]
    return Consensus(rule=row["rule"], kept=row["kept"], opinions=tuple(opinions))


def recorded_rollout(row: Mapping[str, Any]) -> Rollout:
    """Return the rollout that a row of a rollouts shard holds."""
    return Rollout(
        **{
            **row,
            "outcome": Outcome(row["outcome"]),
            "step_ends": _tuple(row["step_ends"]),
            "through": _tuple(row["through"]),
        }
    )


def _tuple(items: Iterable[Any] | None) -> tuple[Any, ...] | None:
    return None if items is None else tuple(items)
