"""Counts what a run's files hold, with pyarrow alone: nothing of the package's readers is used.

It follows docs/formats.md: the plan says which block holds a problem, catalogs of merges where
merged blocks lie, and a labels shard names its rollouts.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_OUTCOMES = ("right", "wrong", "truncated", "ungraded")
Row = dict[str, Any]


def audit(run: Path, answers: Mapping[str, str], *, per_problem: int, is_complete: bool) -> int:
    """Check that every problem's labels rest on exactly the rollouts that they count.

    Args:
        run: folder of a labelling run.
        answers: gold of each problem, by id, as the last labelling job was given them.
        per_problem: solutions of each.
        is_complete: whether every problem must have labels.

    Returns:
        The number of rollouts that labels which count rest on.
    """
    block_of = _planned(run)
    if is_complete:
        assert block_of.keys() == answers.keys()
    places = _merged(run)
    shard_of = cache(lambda block: _shard(run, block, places))  # holds several problems
    num_rollouts = 0
    for problem, block in block_of.items():
        shard = shard_of(block)
        if shard is None:
            assert not is_complete, f"{problem} of block {block} has no labels"
            continue
        labels, rollouts = shard
        rows = [row for row in labels if row["problem_id"] == problem]
        assert [row["sample_index"] for row in rows] == list(range(per_problem))
        assert {row["answer"] for row in rows} == {answers[problem]}
        own = [one for one in rollouts if one["problem_id"] == problem]
        _check_counts(rows, own)
        num_rollouts += len(own)
    return num_rollouts


def _check_counts(rows: list[Row], rollouts: list[Row]) -> None:
    """Compare the counts of all of a problem's prefixes with its rollouts."""
    assert len({(one["prefix_id"], one["index"]) for one in rollouts}) == len(rollouts)
    found: dict[str, Counter[str]] = {}
    for one in rollouts:
        found.setdefault(one["prefix_id"], Counter())[one["outcome"]] += 1
    stepwise = set()
    for row in rows:
        for step in row["steps"][:-1]:
            stepwise.add(step["prefix_id"])
            counts = found.get(step["prefix_id"], Counter())
            assert [step[f"num_{name}"] for name in _OUTCOMES] == [counts[n] for n in _OUTCOMES]
    bare = found.keys() - stepwise
    assert len(bare) <= 1, "rollouts of prefixes that no label has"
    counts = found[bare.pop()] if bare else Counter()
    for row in rows:
        assert [row["root"][f"num_{name}"] for name in _OUTCOMES] == [counts[n] for n in _OUTCOMES]


def _planned(run: Path) -> dict[str, str]:
    """The block that holds what counts of each problem."""
    block_of: dict[str, str] = {}
    for part in sorted((run / "plan").glob("*.parquet")):
        for row in _read(part).to_pylist():
            if not row["superseded"]:
                block_of[row["item_id"]] = row["block"]
            elif block_of.get(row["item_id"]) == row["block"]:
                del block_of[row["item_id"]]
    return block_of


def _merged(run: Path) -> dict[str, Row]:
    """The places of merged blocks, as the last merge of each has them."""
    rows = (
        row
        for catalog in sorted((run / "compacted").glob("*.parquet"))
        for row in _read(catalog).to_pylist()
    )
    return {row["block"]: row for row in rows}


def _shard(run: Path, block: str, places: Mapping[str, Row]) -> tuple[list[Row], list[Row]] | None:
    """Labels of a block, and all rollouts that its shard names; None without labels."""
    path = run / "labels" / f"{block}.parquet"
    place = places.get(block)
    if place is not None:
        path = run / place["file"]
    if not path.exists():
        return None
    table = _read(path)
    labels = table if place is None else table.slice(place["offset"], place["num_rows"])
    metadata = json.loads(table.schema.metadata[b"mclabel"])
    return labels.to_pylist(), _read(run / metadata["rollouts"]).to_pylist()


def _read(path: Path) -> pa.Table:
    """A small file, in one thread: `pq.read_table` would set up the scan of a data set for it."""
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)
