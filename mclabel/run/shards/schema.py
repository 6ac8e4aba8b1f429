"""The schemas of label and rollout shards (Parquet), and the conversion between records and rows.

Columns are derived from the records in `mclabel.core.records`: a column has the name of a field and
the Arrow type of its annotation, and can be null if the annotation allows None. Only the columns
of problem and solution have names of their own.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

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
"""Version of the schemas; no other version can be read. It is raised whenever a column changes."""

_ARROW_TYPES = {bool: pa.bool_(), int: pa.int32(), float: pa.float64()}
"""Arrow types of simple annotations. Simple annotations that are not listed here are stored as
strings."""


def _map_fields_to_columns(record: type, excluded: Collection[str]) -> dict[str, str]:
    """Return the columns of a record's fields under their own names, except `excluded`."""
    return {field.name: field.name for field in fields(record) if field.name not in excluded}


_PROBLEM = {**_map_fields_to_columns(Problem, ()), "id": "problem_id", "text": "problem"}
"""Names of the columns that store a problem's fields, by field. `meta` is stored as JSON."""
_SOLUTION = {
    **_map_fields_to_columns(Solution, ["problem_id", "steps"]),
    **{"id": "solution_id", "text": "solution", "ids": "solution_ids"},
}
"""Names of the columns that store a solution's fields, by field."""
_STEP = _map_fields_to_columns(Step, ())
_STEP_LABEL = _map_fields_to_columns(StepLabel, ["counts"])
_COUNTS = _map_fields_to_columns(Counts, ())
_LABELED = _map_fields_to_columns(LabeledSolution, ["problem", "solution", "steps", "consensus"])


def _make_arrow_fields(
    record: type, columns_by_field: Mapping[str, str], *, int64: Collection[str] = ()
) -> list[pa.Field]:
    """Return the Arrow columns of a record's fields.

    Args:
        record: a dataclass.
        columns_by_field: name of the column of each field, by field.
        int64: integer fields that may exceed 32 bits.
    """
    hints = get_type_hints(record)
    columns = []
    for field, column in columns_by_field.items():
        kind = pa.int64() if field in int64 else _to_arrow_type(hints[field])
        columns.append(pa.field(column, kind, nullable=NoneType in get_args(hints[field])))
    return columns


def _to_arrow_type(hint: Any) -> pa.DataType:
    origin = get_origin(hint)
    if origin in (UnionType, Union):
        (hint,) = (part for part in get_args(hint) if part is not NoneType)
        return _to_arrow_type(hint)
    if origin is tuple:
        return pa.list_(_to_arrow_type(get_args(hint)[0]))
    if hint is Counts:
        return _COUNTS_TYPE
    if isinstance(hint, type) and is_dataclass(hint):
        return pa.struct(_make_arrow_fields(hint, _map_fields_to_columns(hint, ())))
    return pa.string() if origin is Literal else _ARROW_TYPES.get(hint, pa.string())


_COUNTS_TYPE = pa.struct(_make_arrow_fields(Counts, _COUNTS, int64=["num_tokens"]))
_STEP_TYPE = pa.struct(
    [*_make_arrow_fields(Step, _STEP), *_make_arrow_fields(StepLabel, _STEP_LABEL), *_COUNTS_TYPE]
)
_CONSENSUS_TYPE = pa.struct(
    [
        column.with_nullable(True)
        for column in _make_arrow_fields(Consensus, _map_fields_to_columns(Consensus, ()))
    ]
)
"""Arrow type of the column `consensus`. Its fields are nullable, although they are null only if the
whole struct is null, because pyarrow could not cast a null struct otherwise."""
FLAG = _to_arrow_type(Flag)

LABELS_SCHEMA = pa.schema(
    [
        *_make_arrow_fields(Problem, _PROBLEM),
        *_make_arrow_fields(Solution, _SOLUTION),
        pa.field("steps", pa.list_(_STEP_TYPE), nullable=False),
        *_make_arrow_fields(LabeledSolution, _LABELED),
        pa.field("consensus", _CONSENSUS_TYPE),
    ]
)
"""Columns of a labels shard, with one row per labelled solution; see docs/formats.md."""

ROLLOUTS_SCHEMA = pa.schema(
    _make_arrow_fields(Rollout, _map_fields_to_columns(Rollout, ()), int64=["seed"])
)
"""Columns of a rollouts shard, with one row per rollout; see docs/formats.md."""


def to_label_row(row: LabeledSolution) -> dict[str, Any]:
    """Return a labelled solution as a row of a labels shard."""
    steps = zip(row.solution.steps, row.steps, strict=True)
    return {
        **_map_values_by_column(row.problem, _PROBLEM),
        **_map_values_by_column(row.solution, _SOLUTION),
        **_map_values_by_column(row, _LABELED),
        "meta": json.dumps(dict(row.problem.meta), sort_keys=True),
        "steps": [
            _map_values_by_column(step, _STEP)
            | _map_values_by_column(label, _STEP_LABEL)
            | _map_values_by_column(label.counts, _COUNTS)
            for step, label in steps
        ],
        "root": asdict(row.root),
        "siblings": asdict(row.siblings),
        "completers": [asdict(completer) for completer in row.completers],
        "consensus": None if row.consensus is None else asdict(row.consensus),
    }


def to_rollout_row(rollout: Rollout) -> dict[str, Any]:
    """Return a rollout as a row of a rollouts shard."""
    return {name: getattr(rollout, name) for name in ROLLOUTS_SCHEMA.names}


def parse_problem(row: Mapping[str, Any]) -> Problem:
    """Return the problem in a row of a labels shard."""
    return Problem(**{**_parse_values_by_field(row, _PROBLEM), "meta": json.loads(row["meta"])})


def parse_labeled_solution(row: Mapping[str, Any]) -> LabeledSolution:
    """Return the labelled solution in a row of a labels shard."""
    solution = Solution(
        **_parse_values_by_field(row, _SOLUTION),
        problem_id=row["problem_id"],
        steps=tuple(Step(**_parse_values_by_field(step, _STEP)) for step in row["steps"]),
    )
    special = {
        "root": _read_counts(row["root"]),
        "siblings": _read_counts(row["siblings"]),
        "completers": tuple(map(_read_completer_counts, row["completers"])),
    }
    return LabeledSolution(
        problem=parse_problem(row),
        solution=solution,
        steps=tuple(
            StepLabel(**_parse_values_by_field(step, _STEP_LABEL), counts=_read_counts(step))
            for step in row["steps"]
        ),
        consensus=parse_consensus(row["consensus"]),
        **{**_parse_values_by_field(row, _LABELED), **special},
    )


def parse_consensus(row: Mapping[str, Any] | None) -> Consensus | None:
    """Return the consensus in the column `consensus` of a row; None if the column is null."""
    if row is None:
        return None
    opinions = [
        SourceOpinion(**{**opinion, "flags": tuple(Flag(**flag) for flag in opinion["flags"])})
        for opinion in row["opinions"]
    ]
    return Consensus(rule=row["rule"], kept=row["kept"], opinions=tuple(opinions))


def parse_rollout(row: Mapping[str, Any]) -> Rollout:
    """Return the rollout in a row of a rollouts shard."""
    return Rollout(**{name: _parse_field_value(name, value) for name, value in row.items()})


def _map_values_by_column(record: Any, columns_by_field: Mapping[str, str]) -> dict[str, Any]:
    """Return a record's values by column."""
    return {column: getattr(record, name) for name, column in columns_by_field.items()}


def _parse_values_by_field(
    row: Mapping[str, Any], columns_by_field: Mapping[str, str]
) -> dict[str, Any]:
    """Return the values of a record's fields by field, from a row."""
    return {
        name: _parse_field_value(name, row[column]) for name, column in columns_by_field.items()
    }


def _parse_field_value(field: str, stored: Any) -> Any:
    """Return a field's value from the form in which a shard stores it."""
    if isinstance(stored, list):
        return tuple(stored)
    return Outcome(stored) if field in _OUTCOMES and stored is not None else stored


_OUTCOMES = ("outcome", "committed")


def _read_counts(row: Mapping[str, Any]) -> Counts:
    return Counts(**{name: row[name] for name in _COUNTS})


def _read_completer_counts(row: Mapping[str, Any]) -> CompleterCounts:
    return CompleterCounts(
        name=row["name"],
        cost=row["cost"],
        root=_read_counts(row["root"]),
        steps=tuple(map(_read_counts, row["steps"])),
    )
