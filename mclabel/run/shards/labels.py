"""Commits and reads the labels and rollouts of blocks.

A block's rollouts are written first, as `rollouts/BLOCK.ATTEMPT.parquet`. Then the labels shard
`labels/BLOCK.parquet`, whose metadata names the rollouts shard, is created exclusively. So exactly
one of several attempts at a block commits both. Readers start from labels shards. A rollouts shard
that no labels shard names belongs to an attempt that was not committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.run.shards.catalog import (
    Catalog,
    make_labels_shard_name,
    read_catalog,
    read_labels_shard,
)
from mclabel.run.shards.digest import is_truncated_parquet, read_parquet_digest
from mclabel.run.shards.opinions import make_no_labels_error
from mclabel.run.shards.plan import PackedNames
from mclabel.run.shards.schema import (
    LABELS_SCHEMA,
    ROLLOUTS_SCHEMA,
    parse_labeled_solution,
    parse_rollout,
    to_label_row,
    to_rollout_row,
)
from mclabel.run.shards.shard import TAIL_BYTES, open_shard, write_rollouts, write_shard
from mclabel.run.shards.store import (
    CUT_OFF,
    Store,
    describe_damaged_file_remedy,
    make_damaged_file_error,
)

_AT_A_TIME = 64
"""Number of rows of a shard that are converted to objects at once. It is small because a reader may
stop after the first rows."""
_MAX_NAMED = 20
"""Maximum number of damaged shards that a message names besides the first."""


def commit_block(
    store: Store,
    block_id: str,
    attempt: str,
    labeled: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout] | None,
    provenance: Mapping[str, Any],
    dropped: Mapping[str, Mapping[str, int]] | None = None,
    set_aside: Mapping[str, Mapping[str, str]] | None = None,
    cost: Mapping[str, int] | None = None,
    ungraded: Mapping[str, int] | None = None,
    num_weak_verdicts: int = 0,
) -> bool:
    """Write and commit a block's shards.

    Args:
        store: the run's store.
        block_id: id of the block.
        attempt: unique id of this attempt at the block.
        labeled: rows of the labels shard.
        rollouts: rows of the rollouts shard; None stores no rollouts.
        provenance: JSON-serialisable metadata of both shards.
        dropped: `num_sampled` and `num_right` of each problem of which `solutions.balance` kept no
            solution, by problem id.
        set_aside: `reason` and `detail` for each problem that could not be labelled, by problem id.
        cost: `num_tokens` sampled for the block and `num_rollouts`, for forecasts.
        ungraded: number of rollouts that could not be graded, for each of the most common reasons.
        num_weak_verdicts: number of rollouts whose answer was guessed, or whose program could have
            forged its test result.

    Returns:
        False if another attempt had already committed the block.
    """
    rollouts_name = digest = None
    named = {**provenance, "block": block_id, "attempt": attempt}
    if rollouts is not None:
        rollouts_name = f"rollouts/{block_id}.{attempt}.parquet"
        rows = pa.Table.from_pylist(list(map(to_rollout_row, rollouts)), schema=ROLLOUTS_SCHEMA)
        digest = write_rollouts(store, rollouts_name, rows, named)
    metadata = {
        **named,
        "dropped": dict(dropped or {}),
        "set_aside": dict(set_aside or {}),
        "cost": None if cost is None else dict(cost),
        "ungraded": dict(ungraded or {}),
        "weak": num_weak_verdicts,
        "kind": "labels",
        "rollouts": rollouts_name,
        "rollouts_digest": digest,
    }
    rows = pa.Table.from_pylist(list(map(to_label_row, labeled)), schema=LABELS_SCHEMA)
    won = write_shard(store, make_labels_shard_name(block_id), rows, metadata)
    if not won:  # the existing shard can be this attempt's own, if the store's reply was lost
        won = read_labels_shard(store, block_id)[0]["attempt"] == attempt
    if not won and rollouts_name is not None:
        store.delete(rollouts_name)
    return won


def read_committed_block_ids(store: Store, *, require_complete: bool = True) -> Set[str]:
    """Return the ids of the blocks whose labels are committed.

    Args:
        store: the run's store.
        require_complete: True raises an error if a block that was once committed is missing.

    Raises:
        DamagedFile: shards are missing or truncated. The error names them and the remedy.
    """
    catalog = read_catalog(store, require_complete=require_complete)
    check_not_cut_off(store, catalog)
    return catalog.blocks


def check_not_cut_off(store: Store, catalog: Catalog) -> None:
    """Raise an error if labels shards are truncated, without reading them completely.

    In a local folder, the last bytes of each shard are checked. In a bucket, only shards that are
    too small are found. `verify` reads all shards completely.

    Raises:
        DamagedFile: shards are truncated. The error names them and the remedy.
    """
    cut_off = set(catalog.too_small_files)
    if store.is_local:
        tails = store.read_tails(map(make_labels_shard_name, catalog.blocks), TAIL_BYTES)
        cut_off.update(name for name, tail in tails if is_truncated_parquet(tail))
    if cut_off:
        first, *others = sorted(cut_off)
        advice = describe_damaged_file_remedy(first)
        if others:
            more = ", …" if len(others) > _MAX_NAMED else ""
            named = ", ".join(others[:_MAX_NAMED])
            advice += f". Do the same for {len(others):,} other damaged files: {named}{more}"
        raise DamagedFile(store.location, first, CUT_OFF, advice)


def read_labels(store: Store, blocks: Collection[str] | None = None) -> Iterator[LabeledSolution]:
    """Yield every labelled solution of a run, in a fixed order.

    Args:
        store: the run's store.
        blocks: ids of the blocks to read; None reads all.

    Raises:
        ShardError: the run has no labels, or a shard is damaged or has another schema version.
    """
    for metadata, table in iter_label_tables(store, blocks):
        try:
            for rows in table.to_batches(max_chunksize=_AT_A_TIME):
                yield from map(parse_labeled_solution, rows.to_pylist())
        except (ValueError, TypeError, LookupError) as error:  # another program wrote the shard
            name = make_labels_shard_name(metadata["block"])
            raise make_damaged_file_error(
                store, name, f"damaged, or not a labels shard ({error})"
            ) from error


def iter_label_tables(
    store: Store, blocks: Collection[str] | None = None
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield the metadata of each labels shard, and its rows that are not superseded by later
    changes of the input.

    Args:
        store: the run's store.
        blocks: ids of the blocks to read. None reads all, and raises an error if a block that was
            once committed is missing.

    Raises:
        ShardError: the run has no labels, or lacks one of the blocks.
        DamagedFile: a shard is damaged.
    """
    catalog = read_catalog(store, require_complete=blocks is None)
    if not catalog.blocks:
        raise make_no_labels_error(store)
    if missing := [block for block in blocks or () if block not in catalog.blocks]:
        raise ShardError(
            f"{store.location}: no longer holds block {missing[0]}, which it held when this "
            "command began. Run the command again"
        )
    for block in catalog.blocks:
        if blocks is None or block in blocks:
            metadata, table = read_labels_shard(store, block)
            yield metadata, catalog.drop_superseded_rows(block, table)


def read_rollouts(store: Store) -> Iterator[Rollout]:
    """Yield the rollouts from which the committed labels were computed, shard by shard."""
    for table in iter_rollout_tables(store):
        yield from map(parse_rollout, table.to_pylist())


def iter_rollout_tables(store: Store) -> Iterator[pa.Table]:
    """Yield the rollouts from which committed labels were computed, one table per labels shard."""
    for metadata, labels in iter_label_tables(store):
        if metadata["rollouts"] is not None:
            rollouts = read_shard_rollouts(store, metadata)
            # Rollouts of superseded problems do not count.
            yield rollouts.filter(pc.is_in(rollouts["problem_id"], pc.unique(labels["problem_id"])))


def read_shard_rollouts(store: Store, metadata: Mapping[str, Any]) -> pa.Table:
    """Return the rollouts of the rollouts shard that a labels shard names.

    Args:
        store: the run's store.
        metadata: metadata of the labels shard; its `rollouts` is not None.

    Raises:
        DamagedFile: the rollouts shard is missing or damaged, or is not the one from which the
            labels were computed.
    """
    name = metadata["rollouts"]
    content = store.read(name)
    if content is None:
        raise make_damaged_file_error(store, name, "missing, though a labels shard names it")
    table = open_shard(store, name, content, "rollouts")[1]
    if read_parquet_digest(content) != metadata.get("rollouts_digest"):
        raise make_damaged_file_error(
            store, name, "its rollouts are not those from which the labels were computed"
        )
    return table


def delete_uncommitted_shards(store: Store) -> int:
    """Delete the shards of attempts that were not committed, and return the number of files.

    It must be called only while no attempt is running. If a committed block has only one rollouts
    shard, the committed attempt wrote it, because attempts write rollouts before labels. If the
    block has several, its labels shard names the one to keep.
    """
    catalog = read_catalog(store, require_complete=False)
    losers: list[str] = []
    by_block = groupby(
        PackedNames(store.iter_names("rollouts")),
        lambda name: name.removeprefix("rollouts/").split(".")[0],
    )
    for block, group in by_block:
        names = list(group)
        if block not in catalog.blocks:
            losers += names
        elif len(names) > 1:
            kept = read_labels_shard(store, block)[0]["rollouts"]
            losers += [name for name in names if name != kept]
    for name in losers:
        store.delete(name)
    store.delete_partial_files()
    return len(losers)
