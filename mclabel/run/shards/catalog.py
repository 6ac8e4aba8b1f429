"""Lists the blocks of a run whose labels are committed, as `labels/BLOCK.parquet`.

If the run has a plan, only blocks and items that the current plan contains count. The others are
superseded: the item was changed or removed later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.run.shards.digest import MIN_SHARD_BYTES
from mclabel.run.shards.finished import check_complete, read_completion_marker
from mclabel.run.shards.opinions import holds_opinions
from mclabel.run.shards.plan import PackedNames, read_planned_blocks
from mclabel.run.shards.shard import read_shard
from mclabel.run.shards.store import Store, make_damaged_file_error

FOLDER = "labels"
WITHOUT_ROWS = ("dropped", "set_aside")
"""Metadata keys of a labels shard. Each holds a mapping from the ids of problems without labels to
the facts recorded about them."""


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """The committed blocks of a run."""

    blocks: PackedNames
    """Ids of the blocks."""
    superseded_ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each block id, the ids of the problems whose labels in this block no longer count."""
    foreign_files: tuple[str, ...] = ()
    """Files in `labels/` that belong to no block of the run's plan."""
    too_small_files: tuple[str, ...] = ()
    """Labels shards with fewer than `MIN_SHARD_BYTES` bytes, which must be damaged."""

    def drop_superseded_rows(self, block: str, labels: pa.Table) -> pa.Table:
        """Return those rows of a block's labels shard that are not superseded."""
        if not (problems := self.superseded_ids.get(block)):
            return labels
        ids = pa.array(list(problems), pa.string())
        return labels.filter(pc.invert(pc.is_in(labels.column("problem_id"), value_set=ids)))

    def problems_without_rows(
        self, block: str, metadata: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """Return the problems of a block that have no labels and are not superseded.

        Args:
            block: id of the block.
            metadata: metadata of the block's labels shard.

        Returns:
            For each key in `WITHOUT_ROWS`, the recorded facts by problem id.
        """
        superseded = self.superseded_ids.get(block, ())
        return {
            kind: {k: v for k, v in metadata.get(kind, {}).items() if k not in superseded}
            for kind in WITHOUT_ROWS
        }


def read_catalog(store: Store, *, require_complete: bool = True) -> Catalog:
    """Return the catalog of the blocks that are committed now.

    Args:
        store: the run's store.
        require_complete: True raises an error if a block that was once committed is missing. Jobs
            and `verify` pass False: a job makes lost blocks again, and `verify` lists them.

    Raises:
        DamagedFile: the plan is damaged, or a block is missing.
    """
    # The order matters because jobs may run at the same time. The record of the finished job is
    # read before the shards are listed, as the job may finish in between. The plan is read last,
    # so that it contains every listed block.
    finished = read_completion_marker(store) if require_complete else None
    too_small: list[str] = []
    there = PackedNames(_iter_labelled_blocks(store, too_small))
    plan = read_planned_blocks(store)
    blocks = there if plan is None else PackedNames(name for name in there if name in plan.names)
    if require_complete and (blocks or not holds_opinions(store)):
        check_complete(store, finished, blocks, FOLDER)
    return Catalog(
        blocks=blocks,
        superseded_ids={} if plan is None else plan.superseded_ids,
        foreign_files=()
        if plan is None
        else tuple(make_labels_shard_name(block) for block in there if block not in blocks),
        too_small_files=tuple(
            make_labels_shard_name(block) for block in too_small if block in blocks
        ),
    )


def make_labels_shard_name(block: str) -> str:
    """Return the name of a block's labels shard."""
    return f"{FOLDER}/{block}.parquet"


def read_labels_shard(store: Store, block: str) -> tuple[dict[str, Any], pa.Table]:
    """Return the metadata and the table of a block's labels shard, including superseded rows.

    Raises:
        DamagedFile: the shard is missing or damaged, or holds another block.
    """
    name = make_labels_shard_name(block)
    metadata, table = read_shard(store, name, "labels")
    if (own := metadata.get("block")) != block:
        raise make_damaged_file_error(store, name, f"holds block {own!r}, but must hold {block!r}")
    return metadata, table


def _iter_labelled_blocks(store: Store, too_small: list[str]) -> Iterator[str]:
    """Yield the ids of the blocks that have a labels shard.

    Args:
        store: the run's store.
        too_small: list to which the ids of blocks are added whose shard has fewer than
            `MIN_SHARD_BYTES` bytes.
    """
    for name, size in store.sizes(FOLDER):
        # In a folder of several runs, labels may be the name of a run, with shards deeper down.
        if name.endswith(".parquet") and name.count("/") == 1:
            block = name.removeprefix(f"{FOLDER}/").removesuffix(".parquet")
            if size < MIN_SHARD_BYTES:
                too_small.append(block)
            yield block
