"""Checks that the shards of a judge's job are what was written, and what its plan assigns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pyarrow as pa

from mclabel.core.errors import DamagedFile
from mclabel.run.shards.opinions import FOLDER, block_of, read_block
from mclabel.run.shards.plan import planned_blocks
from mclabel.run.shards.store import Store, damaged
from mclabel.run.verify.findings import Verification
from mclabel.run.verify.planned import PlannedProblems, name_hashes
from mclabel.run.verify.single_files import SingleFiles


def check_opinions(
    store: Store,
    found: Verification,
    files: SingleFiles,
    on_progress: Callable[[int, int], None],
) -> None:
    """Read all shards of a run of opinions.

    Args:
        store: of the run.
        found: receives findings and counts.
        files: checks of the run's single files.
        on_progress: called with shards read and in all.
    """
    try:
        plan, planned = planned_blocks(store), PlannedProblems(store)
    except DamagedFile as error:
        found.add(error)
        found.notes.append(
            "opinions were not read, because it is unknown which shards belong to the run"
        )
        return
    names = {block_of(name): name for name in store.names(FOLDER) if name.endswith(".parquet")}
    blocks = sorted(block for block in names if plan is None or block in plan.names)
    files.check_complete(set(blocks), len(blocks), FOLDER)
    places: dict[int, str] = {}
    for done, block in enumerate(blocks, 1):
        found.num_shards += 1
        found.num_blocks += 1
        try:
            metadata, table = read_block(store, block)
            files.add_stamp(names[block], metadata)
            superseded = frozenset() if plan is None else plan.superseded.get(block, frozenset())
            ids = [name for name in table["id"].to_pylist() if name not in superseded]
            left_out = [name for name in metadata["set_aside"] if name not in superseded]
            found.num_solutions += len(ids)
            _check_numbers(store, names[block], table)
            if left_out:
                files.check_note(block)
            _check_items(store, names[block], {*ids, *left_out}, planned, block)
            for identity in name_hashes(ids).tolist():
                if (other := places.setdefault(identity, names[block])) != names[block]:
                    raise damaged(store, names[block], f"holds solutions that {other} also holds")
        except DamagedFile as error:
            found.add(error)
        on_progress(done, len(blocks))
    files.check_configurations()
    if strangers := len(names) - len(blocks):
        found.notes.append(
            f"{strangers:,} files in {FOLDER}/ belong to no block of the plan and are not read"
        )


def _check_numbers(store: Store, name: str, table: pa.Table) -> None:
    for column, what in (("scores", "score"), ("concentrations", "concentration")):
        for numbers in table[column].to_pylist():
            if any(number is None or not math.isfinite(number) for number in numbers):
                raise damaged(store, name, f"holds a {what} that is not a finite number")


def _check_items(
    store: Store, name: str, there: set[str], planned: PlannedProblems, block: str
) -> None:
    """Compare the solutions of a block with those of the plan."""
    if not planned.is_there:
        return
    hashes, wanted = set(name_hashes(there).tolist()), planned.of([block])
    if hashes != wanted:
        raise damaged(
            store,
            name,
            f"lacks {len(wanted - hashes):,} solutions that the plan assigns to it, and holds "
            f"{len(hashes - wanted):,} others",
        )
