"""Label and rollout shards: the commit rule, and reading them back.

A block's rollouts are written first, as `rollouts/BLOCK.ATTEMPT.parquet`. Then the labels, which
name them, are created exclusively as `labels/BLOCK.parquet`: one of several attempts wins as a
whole. Readers follow the labels; rollouts that none names belong to a lost attempt.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.run.shards.catalog import Catalog, read_catalog
from mclabel.run.shards.digest import is_cut_off, parquet_digest
from mclabel.run.shards.opinions import no_labels
from mclabel.run.shards.plan import PackedNames
from mclabel.run.shards.schema import (
    LABELS_SCHEMA,
    ROLLOUTS_SCHEMA,
    label_row,
    labeled_solution,
    recorded_rollout,
    rollout_row,
)
from mclabel.run.shards.shard import TAIL, open_shard, read_shard, write_rollouts, write_shard
from mclabel.run.shards.store import CUT_OFF, Store, damaged, remedy

_AT_A_TIME = 64
"""Rows of a shard that become objects together: a reader may want the first ones alone."""
FIT = "fit"
"""Key of a shard's metadata: names what was learned from the whole run to make its labels."""
_MAX_NAMED = 20
"""Damaged shards that a message names."""


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
    weak: int = 0,
) -> bool:
    """Write a block's shards; False if another attempt had committed it before.

    Args:
        store: the run's store.
        block_id: names the labels shard.
        attempt: unique to this attempt at the block.
        labeled: rows of the labels shard.
        rollouts: rows of the rollouts shard, None to keep none.
        provenance: goes into the shards' metadata, JSON-serialisable.
        dropped: problems without rows, by id, with `num_sampled` and `num_right`.
        set_aside: problems that could not be labelled, by id, with `reason` and `detail`.
        cost: `num_tokens` sampled for the block and `num_rollouts`, for forecasts.
        ungraded: number of rollouts that could not be graded, by the commonest reasons.
        weak: number of rollouts with a weak verdict (`mclabel.checkers.guarded.is_weak`).
    """
    rollouts_name = None if rollouts is None else f"rollouts/{block_id}.{attempt}.parquet"
    labels_name = f"labels/{block_id}.parquet"
    named = {"block": block_id, "attempt": attempt}
    metadata = {
        **provenance,
        "dropped": dict(dropped or {}),
        "set_aside": dict(set_aside or {}),
        "cost": None if cost is None else dict(cost),
        "ungraded": dict(ungraded or {}),
        "weak": weak,
    }
    names = (labels_name, rollouts_name)
    won = write_labels(store, names, labeled, rollouts, {**provenance, **named}, metadata)
    if not won:  # or it was this attempt's, and the store's answer was lost
        won = read_shard(store, labels_name, "labels")[0]["attempt"] == attempt
    if not won and rollouts_name is not None:
        store.delete(rollouts_name)
    return won


def write_labels(
    store: Store,
    names: tuple[str, str | None],
    labeled: Sequence[LabeledSolution],
    rollouts: Sequence[Rollout] | None,
    named: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> bool:
    """Write a shard of rollouts and then one of the labels that rest on them.

    Args:
        store: the run's store.
        names: names of both files, labels first; None keeps no rollouts.
        labeled: rows of the labels shard.
        rollouts: rows of the rollouts shard, None with their name.
        named: metadata of both.
        metadata: more of the labels shard.

    Returns:
        False if there is a labels shard of that name.
    """
    digest = None
    if names[1] is not None:
        table = [rollout_row(rollout) for rollout in rollouts or ()]
        rows = pa.Table.from_pylist(table, schema=ROLLOUTS_SCHEMA)
        digest = write_rollouts(store, names[1], rows, named)
    rows = pa.Table.from_pylist([label_row(row) for row in labeled], schema=LABELS_SCHEMA)
    rests_on = {"kind": "labels", "rollouts": names[1], "rollouts_digest": digest}
    return write_shard(store, names[0], rows, {**named, **metadata, **rests_on})


def committed_blocks(store: Store, *, must_be_whole: bool = True) -> Set[str]:
    """Return the ids of the blocks whose labels are committed.

    Args:
        store: the run's store.
        must_be_whole: see `read_catalog`.

    Raises:
        DamagedFile: names shards that are lost or cut off, and the remedy.
    """
    catalog = read_catalog(store, must_be_whole=must_be_whole)
    check_not_cut_off(store, catalog)
    return catalog.blocks.keys()


def check_not_cut_off(store: Store, catalog: Catalog) -> None:
    """Find labels shards that are obviously no longer whole, without reading them.

    In a folder those that lack their end, elsewhere those that are smaller than any shard; `verify`
    reads all.

    Raises:
        DamagedFile: names them, and the remedy.
    """
    cut_off = set(catalog.too_small)
    if store.is_local:
        tails = store.tails(catalog.blocks.files(), TAIL)
        cut_off.update(name for name, tail in tails if is_cut_off(tail))
    if cut_off:
        first, *others = sorted(cut_off)
        advice = remedy(first)
        if others:
            more = ", …" if len(others) > _MAX_NAMED else ""
            named = ", ".join(others[:_MAX_NAMED])
            advice += f". The same holds for {len(others):,} others: {named}{more}"
        raise DamagedFile(store.location, first, CUT_OFF, advice)


def read_labels(store: Store, blocks: Collection[str] | None = None) -> Iterator[LabeledSolution]:
    """Yield every labelled solution of a run, in a fixed order.

    Args:
        store: the run's store.
        blocks: ids of the blocks to read; None reads all.

    Raises:
        ShardError: no labels, a damaged shard, or one of another schema version.
    """
    for metadata, table in label_tables(store, blocks):
        try:
            for rows in table.to_batches(max_chunksize=_AT_A_TIME):
                yield from map(labeled_solution, rows.to_pylist())
        except (ValueError, TypeError, LookupError) as error:  # another program wrote it
            name = f"labels/{metadata.get('block')}.parquet"
            raise damaged(store, name, f"damaged, or not a labels shard ({error})") from error


def label_tables(
    store: Store, blocks: Collection[str] | None = None
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    """Yield the metadata and table of each labels shard, or of those of `blocks`.

    Without `blocks`, a run that has lost blocks is refused. A shard that is merged into another one
    meanwhile is read from there.

    Raises:
        ShardError: the labels were fitted anew meanwhile (`mclabel.run.shards.compact`).
    """
    fits = set[str | None]()
    for metadata, table in _label_tables(store, blocks):
        fits.add(metadata.get(FIT))
        if len(fits) > 1:
            raise ShardError(
                f"{store.location}: was combined anew while it was being read. Run the command "
                "again"
            )
        yield metadata, table


def _label_tables(
    store: Store, blocks: Collection[str] | None
) -> Iterator[tuple[dict[str, Any], pa.Table]]:
    catalog = read_catalog(store, must_be_whole=blocks is None)
    if not catalog.files:
        raise no_labels(store)
    if missing := [block for block in blocks or () if block not in catalog.blocks]:
        raise ShardError(
            f"{store.location}: no longer holds block {missing[0]}, which it held when the command "
            "looked first. Run the command again"
        )
    by_file = catalog.by_file()
    for name in catalog.files:
        wanted = [block for block in by_file[name] if blocks is None or block in blocks]
        content = store.read(name) if wanted else None
        if content is not None:
            metadata, table = open_shard(store, name, content, "labels")
            yield metadata, pa.concat_tables(catalog.parts(store, name, wanted, metadata, table))
            continue
        for block in wanted:
            now = read_catalog(store, must_be_whole=False)
            place = now.blocks.get(block)
            if place is None or place.file == name:
                raise ShardError(
                    f"{store.location}/{name}: was deleted while the run was being read. Run the "
                    "command again"
                )
            metadata, table = read_shard(store, place.file, "labels")
            yield metadata, *now.parts(store, place.file, [block], metadata, table)


def read_rollouts(store: Store) -> Iterator[Rollout]:
    """Yield the rollouts that the committed labels rest on, shard by shard."""
    for table in rollout_tables(store):
        yield from map(recorded_rollout, table.to_pylist())


def rollout_tables(store: Store) -> Iterator[pa.Table]:
    """Yield the rollouts that the committed labels rest on, a table a labels shard."""
    for metadata, labels in label_tables(store):
        if metadata["rollouts"] is not None:
            rollouts = named_rollouts(store, metadata)
            # Of a merged shard, label_tables may give a part.
            yield rollouts.filter(pc.is_in(rollouts["problem_id"], pc.unique(labels["problem_id"])))


def named_rollouts(store: Store, metadata: Mapping[str, Any]) -> pa.Table:
    """Return the rollouts that a labels shard names.

    Args:
        store: the run's store.
        metadata: metadata of the labels shard; its `rollouts` is not None.

    Raises:
        DamagedFile: they are missing, damaged, or others than those that the labels rest on.
    """
    name = metadata["rollouts"]
    content = store.read(name)
    if content is None:
        raise damaged(store, name, "missing, though a labels shard names it")
    table = open_shard(store, name, content, "rollouts")[1]
    if parquet_digest(content) != metadata.get("rollouts_digest"):
        raise damaged(store, name, "its rollouts are not the ones that the labels come from")
    return table


def delete_losers(store: Store) -> int:
    """Remove what belongs to attempts that lost; the number of files removed.

    Only for a run in which no attempt is under way. A committed block with one rollouts file has
    that of the attempt that won, which wrote it first; of one with several, its labels shard names
    it. A block that was merged into a larger shard needs none of them.
    """
    catalog = read_catalog(store, must_be_whole=False)
    losers = list(catalog.merged_away)
    by_block = groupby(
        PackedNames(store.listed("rollouts")),
        lambda name: name.removeprefix("rollouts/").split(".")[0],
    )
    for block, group in by_block:
        names = list(group)
        place = catalog.blocks.get(block)
        if place is None or place.is_merged:
            losers += names
        elif len(names) > 1:
            kept = read_shard(store, place.file, "labels")[0]["rollouts"]
            losers += [name for name in names if name != kept]
    for name in losers:
        store.delete(name)
    store.sweep()
    return len(losers)
