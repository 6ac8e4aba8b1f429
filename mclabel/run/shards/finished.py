"""The record that a job ended with all its blocks done, and the losses since then.

`finished.json` counts blocks and parts of the plan and names single files. Every run of a job that
leaves no block undone replaces it. Without it nothing is known to be lost, as an unfinished job
lacks blocks, too.
"""

from __future__ import annotations

import io
import json
from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile
from mclabel.core.settings import Count
from mclabel.run.shards.digest import with_digest
from mclabel.run.shards.manifest import read_record_file, run_id
from mclabel.run.shards.plan import part_name, planned_blocks, read_parts
from mclabel.run.shards.store import Store

FILE = "finished.json"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """Contents of a finished job."""

    run: str | None
    """The `id` of the run's manifest; None without one."""
    num_blocks: Count
    """Blocks that hold what counts of an item."""
    num_plan_parts: Count
    """Parts of the plan; 0 where the run has none, as imports."""
    files: tuple[str, ...]
    """Single files beside the shards."""


def write_finished(
    store: Store, *, num_blocks: int, num_plan_parts: int = 0, files: tuple[str, ...] = ()
) -> None:
    """Record that a job has done all of its blocks.

    Args:
        store: the run's store.
        num_blocks: number of the job's blocks.
        num_plan_parts: number of parts of its plan; 0 for a run without one.
        files: names of single files that the job has written.
    """
    content = {
        "run": run_id(store),
        "num_blocks": num_blocks,
        "num_plan_parts": num_plan_parts,
        "files": list(files),
    }
    store.replace(FILE, io.BytesIO(json.dumps(with_digest(content), indent=1).encode()))


def read_finished(store: Store) -> Finished | None:
    """Return the record of a run; None of one that has not ended.

    Raises:
        DamagedFile: it is damaged.
    """
    return read_record_file(store, FILE, Finished)


AGAIN = "Run the job again, which does the missing work again"


def check_whole(
    store: Store, finished: Finished | None, committed: Container[str], count: int, folder: str
) -> None:
    """Refuse a run that lacks what its finished job had; see `losses`.

    Raises:
        DamagedFile: names the first loss, the number of others, and the remedy.
    """
    if finished is None:
        return
    lost = losses(store, finished, committed, count, folder)
    if (first := next(lost, None)) is not None:
        num_others = sum(1 for _ in lost)
        more = f" ({num_others:,} others are, too)" if num_others else ""
        raise DamagedFile(store.location, first.name, first.fault + more, first.remedy)


def losses(
    store: Store, finished: Finished, committed: Container[str], count: int, folder: str
) -> Iterator[DamagedFile]:
    """Find what a run has lost since its job had ended.

    Args:
        store: the run's store.
        finished: the record of the end.
        committed: ids of the blocks that are there.
        count: their number.
        folder: folder that holds the shards of single blocks.

    Raises:
        DamagedFile: a part of the plan is damaged.
    """
    had, num_lost = finished.num_plan_parts, finished.num_blocks - count
    if had:
        num_parts, blocks = undone_blocks(store, committed, most_parts=had)
        if num_parts < had:
            fault = f"missing, though the job's plan had {had:,} parts"
            yield DamagedFile(store.location, part_name(num_parts + 1), fault, AGAIN)
            return
        for block in blocks:
            fault = "missing, though the job has ended with all of its blocks done"
            again = "Delete what is in its place, if anything, and run the job again"
            yield DamagedFile(store.location, f"{folder}/{block}.parquet", fault, again)
        num_lost = finished.num_blocks - _num_planned(store)
        if blocks or num_parts > had:
            return
    if num_lost > 0:  # there is no plan, or it is not what it was
        fault = (
            f"{num_lost:,} of the {finished.num_blocks:,} blocks of the finished job are missing"
        )
        yield DamagedFile(store.location, folder, fault, AGAIN)


def undone_blocks(
    store: Store, committed: Container[str], *, most_parts: int | None = None
) -> tuple[int, tuple[str, ...]]:
    """Return the planned blocks that are missing, of which something counts.

    Args:
        store: the run's store.
        committed: ids of the blocks that are there.
        most_parts: number of parts of the plan to look at; None looks at all.

    Returns:
        The number of parts that the plan has, and the ids in order.

    Raises:
        DamagedFile: a part of the plan is damaged.
    """
    num_parts, missing = 0, set[str]()
    for num_parts, part in enumerate(read_parts(store), 1):
        if most_parts is None or num_parts <= most_parts:
            names = pc.unique(part.column("block")).to_pylist()
            missing.update(name for name in names if name not in committed)
    return num_parts, tuple(sorted(_that_count(store, missing))) if missing else ()


def _num_planned(store: Store) -> int:
    """Return the number of planned blocks of which something counts."""
    plan = planned_blocks(store)
    if plan is None:
        return 0
    touched = set(plan.superseded)
    return len(plan.names) - len(touched - _that_count(store, touched))


def _that_count(store: Store, blocks: set[str]) -> set[str]:
    """Return the blocks among these of which not every item was superseded."""
    items: dict[str, set[Any]] = defaultdict(set)
    wanted = pa.array(sorted(blocks), pa.string())
    for part in read_parts(store):
        for row in part.filter(pc.is_in(part.column("block"), value_set=wanted)).to_pylist():
            if row["superseded"]:
                items[row["block"]].discard(row["item_id"])
            else:
                items[row["block"]].add(row["item_id"])
    return {block for block, remaining in items.items() if remaining}
