"""Checks the counts in labels by counting the rollouts again that they come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.records import Outcome
from mclabel.core.seeds import prefix_id

_COUNTS = tuple(f"num_{outcome}" for outcome in Outcome)
_MAX_NAMED = 3


def disagreements(labels: pa.Table, rollouts: pa.Table) -> Iterator[str]:
    """Where a labels shard disagrees with its rollouts.

    A step's counts are those of the rollouts from its own prefix, by all completers and by each;
    what other rollouts went through it (`through`) is evidence to the estimator and counted
    nowhere. A last step has no rollouts.

    Args:
        labels: of one shard.
        rollouts: that it names.
    """
    counted = _counted(rollouts)
    found, named = [], set()
    for (identity, completer), counts in chain(_said(labels), _said_of_completers(labels)):
        named.add(identity)
        if counts != counted.get((identity, completer), (0,) * len(counts)):
            found.append(identity)
    if found:
        yield _some("prefixes have counts that differ from their rollouts", found)
    place = ["prefix_id", "completer", "index"]
    twice = rollouts.num_rows - len(rollouts.group_by(place).aggregate([]))
    if twice:
        yield f"{twice:,} rollouts occur twice"
    strange = set(pc.unique(rollouts["problem_id"]).to_pylist()) - set(
        pc.unique(labels["problem_id"]).to_pylist()
    )
    if strange:
        yield _some("problems have rollouts but no labels", sorted(strange))
    through = pc.unique(rollouts["through"].combine_chunks().flatten()).to_pylist()
    if unknown := set(through) - named:
        yield _some("prefixes that rollouts went through have no labels", sorted(unknown))


_Whose = tuple[str, str | None]
"""A prefix, and the completer; None for all together."""


def _counted(rollouts: pa.Table) -> Mapping[_Whose, tuple[int, ...]]:
    """Rollouts of each outcome, and tokens."""
    found: dict[_Whose, list[int]] = {}
    place = {outcome.value: number for number, outcome in enumerate(Outcome)}
    sums = rollouts.group_by(["prefix_id", "completer", "outcome"]).aggregate(
        [("num_tokens", "count"), ("num_tokens", "sum")]
    )
    for row in sums.to_pylist():
        for completer in (row["completer"], None):
            counts = found.setdefault((row["prefix_id"], completer), [0] * (len(place) + 1))
            counts[place[row["outcome"]]] += row["num_tokens_count"]
            counts[-1] += row["num_tokens_sum"]
    return {whose: tuple(counts) for whose, counts in found.items()}


def _said(labels: pa.Table) -> Iterator[tuple[_Whose, tuple[int, ...]]]:
    """Prefixes with the counts in the labels: of bare problems and of all steps but last."""
    for problem, root in zip(
        labels["problem_id"].to_pylist(), labels["root"].to_pylist(), strict=True
    ):
        yield (prefix_id(problem, ()), None), _tuple(root)
    steps = labels["steps"].combine_chunks()
    lengths = pc.list_value_length(steps).to_numpy(zero_copy_only=False)
    last = np.cumsum(lengths[lengths > 0]) - 1
    inner = np.ones(int(lengths.sum()), bool)
    inner[last] = False
    flat = steps.flatten().filter(pa.array(inner))
    names = ("prefix_id", *_COUNTS, "num_tokens")
    columns = [flat.field(name).to_pylist() for name in names]
    for identity, *counts in zip(*columns, strict=True):
        yield (identity, None), tuple(counts)


def _said_of_completers(labels: pa.Table) -> Iterator[tuple[_Whose, tuple[int, ...]]]:
    """The same of each completer; nothing in shards of a time before there were several."""
    steps = labels["steps"].combine_chunks()
    names = pa.ListArray.from_arrays(steps.offsets, steps.values.field("prefix_id")).to_pylist()
    whole = zip(
        labels["problem_id"].to_pylist(), names, labels["completers"].to_pylist(), strict=True
    )
    for problem, prefixes, completers in whole:
        for one in completers:
            yield (prefix_id(problem, ()), one["name"]), _tuple(one["root"])
            for identity, counts in zip(prefixes[:-1], one["steps"], strict=False):
                yield (identity, one["name"]), _tuple(counts)


def _tuple(counts: Mapping[str, Any]) -> tuple[int, ...]:
    return tuple(counts[name] for name in (*_COUNTS, "num_tokens"))


def _some(what: str, names: list[str]) -> str:
    listed = ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")
    return f"{len(names):,} {what} ({listed})"
