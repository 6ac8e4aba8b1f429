"""Merges small shards into large ones, in one more exclusive commit.

Rows are written again unchanged, less superseded ones; then one commit covers all of them
(`catalog`), and the small shards are deleted. A merge that is killed before or after its commit is
cleaned up by the next one. Labelling may go on meanwhile.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.core.records import LabeledSolution, Rollout
from mclabel.run.shards.catalog import (
    MERGED,
    WITHOUT_ROWS,
    Catalog,
    Place,
    commit_merge,
    read_catalog,
    without_problems,
)
from mclabel.run.shards.labels import FIT, named_rollouts, write_labels
from mclabel.run.shards.manifest import MANIFEST, claimed_config
from mclabel.run.shards.schema import LABELS_SCHEMA, ROLLOUTS_SCHEMA
from mclabel.run.shards.shard import disagreements, read_shard, write_rollouts, write_shard
from mclabel.run.shards.store import Store
from mclabel.run.shards.trees import has_trees, is_search

_OWN = (
    *("schema_version", "block", "blocks", "attempt", "rollouts", "rollouts_digest", "cost"),
    "ungraded",
    "weak",
    *WITHOUT_ROWS,
)
"""Keys of a shard's metadata that may differ among shards that are merged."""


@dataclass(frozen=True, kw_only=True)
class Compaction:
    """Result of a merge."""

    num_before: int
    """Labels shards."""
    num_after: int
    num_solutions: int
    """Number of solutions in the shards that were merged."""


@dataclass(kw_only=True)
class _Pile:
    """Shards of one configuration and versions, to be merged into one."""

    metadata: dict[str, Any]
    labels: list[pa.Table]
    rollouts: list[pa.Table]
    blocks: list[tuple[str, int]]
    """Blocks in the pile, with their numbers of rows."""
    without_rows: dict[str, dict[str, Any]]
    """Problems without labels, by their key in the metadata, and by id."""
    costs: list[dict[str, int] | None] = field(default_factory=list)
    """Costs of the shards; None where one is not known."""
    ungraded: Counter[str] = field(default_factory=Counter)
    """Rollouts without a verdict, by reason."""
    weak: int = 0
    """Rollouts whose verdict is weak (`mclabel.checkers.guarded.is_weak`)."""
    num_shards: int = 0
    num_rows: int = 0


def compact(
    store: Store, *, rows: int = 20_000, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Compaction:
    """Merge shards into ones of about `rows` solutions.

    Args:
        store: the run's store.
        rows: a shard with at least half as many is left unchanged.
        on_progress: called with shards read and in all.

    Raises:
        DamagedFile: a shard is damaged, or its labels disagree with its rollouts.
        ShardError: another merge was faster, or the run is one of a search.
    """
    if has_trees(store) or is_search(claimed_config(store, MANIFEST)):
        raise ShardError(
            f"{store.location}: holds a search, whose trees are stored one file per shard, so its "
            "shards are not merged. Raise block_problems in the next search for fewer shards"
        )
    before = read_catalog(store)
    if any(_unused(store, before)):  # of a merge that was killed: what replaced it must be whole
        for file in [name for name in before.files if name.startswith(f"{MERGED}/")]:
            _check_rollouts(store, file, *read_shard(store, file, "labels"))
    places: dict[str, Place] = {}
    written: list[str] = []
    attempt = uuid.uuid4().hex[:8]
    num_rows = 0
    try:
        for pile in _piles(store, before, rows, on_progress):
            if pile.num_shards < 2:
                continue
            name = f"{before.number + 1:06d}.{attempt}.{len(written):05d}.parquet"
            written.append(name)
            _write(store, name, pile)
            offset = 0
            for block, count in pile.blocks:
                places[block] = Place(f"{MERGED}/labels/{name}", offset, count)
                offset += count
            num_rows += pile.num_rows
    except DamagedFile:
        _delete_written(store, written)
        raise
    if places and not commit_merge(store, before.number + 1, places):
        _delete_written(store, written)
        raise ShardError(
            f"{store.location}: another `mclabel compact` has merged it in the "
            "meantime, so nothing was changed. Run the command again"
        )
    after = delete_unused(store)
    return Compaction(
        num_before=len(before.files), num_after=len(after.files), num_solutions=num_rows
    )


def delete_unused(store: Store) -> Catalog:
    """Delete what committed merges have replaced, and what was written for merges that were not.

    Returns:
        What is committed.
    """
    catalog = read_catalog(store, must_be_whole=False)
    for name in _unused(store, catalog):
        store.delete(name)
    return catalog


def _piles(
    store: Store, catalog: Catalog, rows: int, on_progress: Callable[[int, int], None]
) -> Iterator[_Pile]:
    """Yield shards in the order of their names, piled up to the wanted size."""
    open_piles: dict[str, _Pile] = {}
    by_file = catalog.by_file()
    for done, file in enumerate(catalog.files, 1):
        blocks = by_file[file]
        sizes = [catalog.blocks[block].num_rows for block in blocks]
        if sum(size or 0 for size in sizes) * 2 >= rows:
            continue
        metadata, table = read_shard(store, file, "labels")
        if len(table) * 2 >= rows:
            continue
        parts = catalog.parts(store, file, blocks, metadata, table)
        kept = {k: v for k, v in metadata.items() if k not in _OWN}
        kept["keeps_rollouts"] = metadata["rollouts"] is not None
        pile = open_piles.setdefault(
            json.dumps(kept, sort_keys=True),
            _Pile(
                metadata=kept,
                labels=[],
                rollouts=[],
                blocks=[],
                without_rows={name: {} for name in WITHOUT_ROWS},
            ),
        )
        pile.labels += parts
        pile.costs.append(metadata.get("cost"))
        pile.ungraded.update(metadata.get("ungraded", {}))
        pile.weak += metadata.get("weak", 0)
        without_rows = catalog.without_rows(blocks, metadata)
        for name, problems in pile.without_rows.items():
            problems.update(without_rows[name])
        if metadata["rollouts"] is not None:
            rollouts = named_rollouts(store, metadata)
            kept_rollouts = without_problems(rollouts, catalog.superseded_in(blocks))
            _check_rollouts(store, file, metadata, pa.concat_tables(parts), kept_rollouts)
            pile.rollouts.append(kept_rollouts)
        pile.num_shards += 1
        pile.blocks += [(block, len(part)) for block, part in zip(blocks, parts, strict=True)]
        pile.num_rows += sum(map(len, parts))
        on_progress(done, len(catalog.files))
        if pile.num_rows >= rows:
            yield open_piles.pop(json.dumps(kept, sort_keys=True))
    yield from open_piles.values()


def _total_cost(costs: Sequence[dict[str, int] | None]) -> dict[str, int] | None:
    recorded = [cost for cost in costs if cost is not None]
    if len(recorded) < len(costs):
        return None
    return {name: sum(cost[name] for cost in recorded) for name in recorded[0]}


def _write(store: Store, name: str, pile: _Pile) -> None:
    metadata = {k: v for k, v in pile.metadata.items() if k != "keeps_rollouts"}
    rollouts = digest = None
    if pile.metadata["keeps_rollouts"]:
        rollouts = f"{MERGED}/rollouts/{name}"
        whole = pa.concat_tables(pile.rollouts).cast(ROLLOUTS_SCHEMA)
        digest = write_rollouts(store, rollouts, whole, metadata)
    whole = pa.concat_tables(pile.labels).cast(LABELS_SCHEMA)
    merged = {
        **metadata,
        **pile.without_rows,
        "rollouts": rollouts,
        "rollouts_digest": digest,
        "blocks": dict(pile.blocks),
        "cost": _total_cost(pile.costs),
        "ungraded": dict(pile.ungraded.most_common()),
        "weak": pile.weak,
    }
    write_shard(store, f"{MERGED}/labels/{name}", whole, merged)


def _delete_written(store: Store, names: Sequence[str]) -> None:
    for name in names:
        store.delete(f"{MERGED}/labels/{name}")
        store.delete(f"{MERGED}/rollouts/{name}")


def _check_rollouts(
    store: Store,
    file: str,
    metadata: Mapping[str, Any],
    labels: pa.Table,
    rollouts: pa.Table | None = None,
) -> None:
    """Count the labels of a shard again from the rollouts that are kept of it.

    Args:
        store: the run's store.
        file: the labels shard.
        metadata: the shard's metadata.
        labels: the shard's rows that count.
        rollouts: rollouts to keep; None takes all that the shard names.

    Raises:
        DamagedFile: they disagree. Labels without their rollouts would be worthless.
    """
    if metadata["rollouts"] is None:
        return
    for fault in disagreements(
        labels, named_rollouts(store, metadata) if rollouts is None else rollouts
    ):
        raise DamagedFile(
            store.location,
            file,
            fault,
            f"Nothing was merged or deleted. `mclabel verify {store.location}` lists all "
            "damage and the remedies",
        )


def _unused(store: Store, catalog: Catalog) -> Iterator[str]:
    """Yield shards that a committed merge has replaced, and those of uncommitted merges.

    Shards with the next number are left out, because that merge may be under way.
    """
    used = {file.removeprefix(f"{MERGED}/labels/") for file in catalog.files}
    for folder in ("labels", "rollouts"):
        for name in store.names(f"{MERGED}/{folder}"):
            file = name.removeprefix(f"{MERGED}/{folder}/")
            number = file.split(".")[0]
            if file not in used and number.isdecimal() and int(number) <= catalog.number:
                yield name
    merged = {block for block, place in catalog.blocks.items() if place.is_merged}
    for folder in ("labels", "rollouts"):
        for name in store.names(folder):
            if name.removeprefix(f"{folder}/").split(".")[0] in merged:
                yield name


# All blocks of a run written anew and put in the place of the old ones in one commit.
#
# Labels of a combined run rest on what was learned from the whole run (their *fit*, which is in
# each shard's metadata), so blocks of two fits must never lie side by side. All blocks are written
# as shards of a merge (`compact`), one each, and its catalog is their commit: readers have the
# labels of the old fit before, and those of the new one after it. Killed before the commit, nothing
# has happened; what was written is deleted by the next one.


def fit_of(store: Store) -> str | None:
    """Return the fit that all blocks of a run share; None if its labels have none."""
    for file in read_catalog(store, must_be_whole=False).files:
        return read_shard(store, file, "labels")[0].get(FIT)
    return None


class BlocksAnew:
    """Writes all blocks of a run, to replace those that are there."""

    def __init__(self, store: Store) -> None:
        """Begin; nothing is replaced before `commit`.

        Args:
            store: the run's store.
        """
        self._store = store
        self._number = read_catalog(store, must_be_whole=False).number + 1
        self._attempt = uuid.uuid4().hex[:8]
        self._places: dict[str, Place] = {}

    def write(
        self,
        block: str,
        labeled: Sequence[LabeledSolution],
        rollouts: Sequence[Rollout] | None,
        provenance: Mapping[str, Any],
        metadata: Mapping[str, Any],
    ) -> None:
        """Write a block.

        Args:
            block: its id.
            labeled: its rows.
            rollouts: rollouts of the block's problems; None keeps none.
            provenance: metadata of both shards.
            metadata: more of the labels shard.
        """
        name = f"{self._number:06d}.{self._attempt}.{len(self._places):05d}.parquet"
        labels = f"{MERGED}/labels/{name}"
        names = (labels, None if rollouts is None else f"{MERGED}/rollouts/{name}")
        blocks = {"blocks": {block: len(labeled)}}
        write_labels(
            self._store, names, labeled, rollouts, provenance, {**metadata, **blocks, "cost": None}
        )
        self._places[block] = Place(labels, 0, len(labeled))

    def commit(self) -> None:
        """Replace the blocks that are there, all at once, and delete them.

        Raises:
            ShardError: another command has replaced or merged them meanwhile.
        """
        if not commit_merge(self._store, self._number, self._places):
            prefix = f"{MERGED}/labels/"
            _delete_written(
                self._store, [place.file.removeprefix(prefix) for place in self._places.values()]
            )
            raise ShardError(
                f"{self._store.location}: another command has merged or rewritten its shards "
                "in the meantime, so nothing was changed. Run the command again"
            )
        delete_unused(self._store)
