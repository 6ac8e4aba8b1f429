"""Writes and checks the record of a finished job, by which files that are lost later are detected.

`finished.json` stores the number of blocks, the number of parts of the plan, and the names of other
files. A job that ends with all blocks done writes or replaces this file. Without it no loss can be
detected, because blocks are also missing while a job is unfinished.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Container, Iterator, Set
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile
from mclabel.core.settings import Count
from mclabel.run.shards.digest import add_digest
from mclabel.run.shards.manifest import read_record_file, read_run_id
from mclabel.run.shards.plan import make_plan_part_name, read_plan_parts, read_planned_blocks
from mclabel.run.shards.store import Store

FILE = "finished.json"


@dataclass(frozen=True, kw_only=True)
class CompletionMarker:
    """Content of `finished.json`."""

    run: str | None
    """The `id` of the run's manifest; None if the run has no manifest."""
    num_blocks: Count
    """Number of blocks with at least one result that is not superseded (replaced because the input
    changed)."""
    num_plan_parts: Count
    """Number of parts of the plan; 0 for runs without a plan, such as imports."""
    files: tuple[str, ...]
    """Names of files that the job has written beside the shards."""


def write_completion_marker(
    store: Store, *, num_blocks: int, num_plan_parts: int = 0, files: tuple[str, ...] = ()
) -> None:
    """Record that a job has done all of its blocks.

    Args:
        store: the run's store.
        num_blocks: number of the job's blocks.
        num_plan_parts: number of parts of the job's plan; 0 for a run without a plan.
        files: names of files that the job has written beside the shards.
    """
    content = {
        "run": read_run_id(store),
        "num_blocks": num_blocks,
        "num_plan_parts": num_plan_parts,
        "files": list(files),
    }
    store.replace(FILE, io.BytesIO(json.dumps(add_digest(content), indent=1).encode()))


def read_completion_marker(store: Store) -> CompletionMarker | None:
    """Return the record of a run's finished job; None if the job has not finished.

    Raises:
        DamagedFile: the record is damaged.
    """
    return read_record_file(store, FILE, CompletionMarker)


AGAIN = "Run the job again, which does the missing work again"


def check_complete(
    store: Store, finished: CompletionMarker | None, committed: Set[str], folder: str
) -> None:
    """Raise an error if a run lacks blocks that its finished job had committed.

    The arguments are those of `find_missing_files`, but if `finished` is None, nothing is checked.

    Raises:
        DamagedFile: blocks are missing. The error names the first missing file, the number of other
            missing files, and the remedy.
    """
    if finished is None:
        return
    lost = find_missing_files(store, finished, committed, folder)
    if (first := next(lost, None)) is not None:
        num_others = sum(1 for _ in lost)
        more = f" ({num_others:,} other files are missing, too)" if num_others else ""
        raise DamagedFile(store.location, first.name, first.fault + more, first.remedy)


def find_missing_files(
    store: Store, finished: CompletionMarker, committed: Set[str], folder: str
) -> Iterator[DamagedFile]:
    """Yield an error for each file that a run has lost since its job finished.

    Args:
        store: the run's store.
        finished: record of the finished job.
        committed: ids of the committed blocks.
        folder: name of the folder of the blocks' shards, such as `labels`.

    Raises:
        DamagedFile: a part of the plan is damaged.
    """
    had, num_lost = finished.num_plan_parts, finished.num_blocks - len(committed)
    if had:
        num_parts, blocks = find_unfinished_blocks(store, committed, max_parts=had)
        if num_parts < had:
            fault = f"missing, though the job's plan had {had:,} parts"
            yield DamagedFile(store.location, make_plan_part_name(num_parts + 1), fault, AGAIN)
            return
        for block in blocks:
            fault = "missing, though the job has ended with all of its blocks done"
            again = "If a file of this name exists, delete it. Then run the job again"
            yield DamagedFile(store.location, f"{folder}/{block}.parquet", fault, again)
        num_lost = finished.num_blocks - _count_planned_blocks(store)
        if blocks or num_parts > had:
            return
    if num_lost > 0:  # the run has no plan, or the plan has changed
        fault = (
            f"{num_lost:,} of the {finished.num_blocks:,} blocks of the finished job are missing"
        )
        yield DamagedFile(store.location, folder, fault, AGAIN)


def find_unfinished_blocks(
    store: Store, committed: Container[str], *, max_parts: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return the planned blocks that are not committed, except those whose items are all
    superseded.

    Args:
        store: the run's store.
        committed: ids of the committed blocks.
        max_parts: number of parts of the plan whose blocks are returned; None includes all parts.

    Returns:
        The number of all parts of the plan, and the sorted ids of the blocks.

    Raises:
        DamagedFile: a part of the plan is damaged.
    """
    num_parts, missing = 0, set[str]()
    for num_parts, part in enumerate(read_plan_parts(store), 1):
        if max_parts is None or num_parts <= max_parts:
            names = pc.unique(part.column("block")).to_pylist()
            missing.update(name for name in names if name not in committed)
    return num_parts, tuple(sorted(_select_blocks_with_results(store, missing))) if missing else ()


def _count_planned_blocks(store: Store) -> int:
    """Return the number of planned blocks of which at least one item is not superseded."""
    plan = read_planned_blocks(store)
    if plan is None:
        return 0
    touched = set(plan.superseded_ids)
    return len(plan.names) - len(touched - _select_blocks_with_results(store, touched))


def _select_blocks_with_results(store: Store, blocks: set[str]) -> set[str]:
    """Return those of the blocks of which at least one item is not superseded."""
    items: dict[str, set[Any]] = defaultdict(set)
    wanted = pa.array(sorted(blocks), pa.string())
    for part in read_plan_parts(store):
        for row in part.filter(pc.is_in(part.column("block"), value_set=wanted)).to_pylist():
            if row["superseded"]:
                items[row["block"]].discard(row["item_id"])
            else:
                items[row["block"]].add(row["item_id"])
    return {block for block, remaining in items.items() if remaining}
