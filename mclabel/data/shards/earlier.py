"""Shards of earlier schemas as tables of the current one.

    schema 3   Shards carry no digest.
    schema 4   The `source` of a step is called `rule`, and `priors` holds `ID@PRICE`: the id, and
               what has a column of its own now, `min_gain_per_token`. Every `answer` is a text.
    schema 5   Rollouts have no `reason`: it is null.
    schema 6   The policy rolled out alone. Labels have no `completers` and no `values_of`, rollouts
               no `completer`.
    schema 7   Labels rest on rollouts alone: they have no `consensus`.

Every reader gets the current columns, whatever wrote the shard, so nothing else needs to know of
earlier schemas. Texts and numbers are not copied.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mclabel.data.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.records import AUTHOR

_STEPS = LABELS_SCHEMA.field("steps").type
_STEPS_OF_4 = pa.list_(
    pa.struct(
        [
            field.with_name("rule") if field.name == "source" else field
            for field in _STEPS.value_type
        ]
    )
)


def upgraded(table: pa.Table, kind: str, version: int) -> pa.Table:
    """The table of a shard, with the names and meanings of the current schema.

    Args:
        table: as it was read from the shard.
        kind: `labels` or `rollouts`.
        version: of the shard's schema.

    Raises:
        ValueError: its columns are not those of that version.
    """
    if kind == "labels" and version < 5:
        table = _with_sources(table)
        table = _with_min_gain(table)
        texts = pa.array(np.zeros(len(table), dtype=np.bool_))
        table = table.append_column(LABELS_SCHEMA.field("answer_is_json"), texts)
    if version < 7:
        author = pa.repeat(pa.scalar(AUTHOR), len(table))
        if kind == "rollouts":
            return table.append_column(ROLLOUTS_SCHEMA.field("completer"), author)
        completers = LABELS_SCHEMA.field("completers")
        none = pa.array([[]] * len(table), type=completers.type)
        table = table.append_column(completers, none)
        table = table.append_column(LABELS_SCHEMA.field("values_of"), author)
    if kind == "labels" and version < 8:
        field = LABELS_SCHEMA.field("consensus")
        table = table.append_column(field, pa.nulls(len(table), type=field.type))
    return table


def _with_sources(table: pa.Table) -> pa.Table:
    """Steps whose `rule` is called `source`."""
    steps = table.column("steps")
    if not steps.type.equals(_STEPS_OF_4):
        raise ValueError(f"column steps must be {_STEPS_OF_4}")
    chunks = [chunk.view(_STEPS) for chunk in steps.chunks]
    place = table.column_names.index("steps")
    return table.set_column(
        place, LABELS_SCHEMA.field("steps"), pa.chunked_array(chunks, type=_STEPS)
    )


def _with_min_gain(table: pa.Table) -> pa.Table:
    """`ID@PRICE` of `priors` in two columns; labels of a time before priors have none."""
    if "priors" not in table.column_names:
        return table
    parts = pc.split_pattern(table.column("priors"), "@", max_splits=1)
    place = table.column_names.index("priors")
    return table.set_column(place, "priors", pc.list_element(parts, 0)).append_column(
        "min_gain_per_token", pc.cast(pc.list_element(parts, 1), pa.float64())
    )
