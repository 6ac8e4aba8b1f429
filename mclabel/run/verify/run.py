"""Checks that a run's files are what was written, and that they agree with each other.

Every file is read once, a shard at a time. Two numbers per solution and problem are kept in memory,
to find duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Set
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.run.shards.catalog import FOLDER as COMPACTED
from mclabel.run.shards.catalog import MERGED, Catalog, read_catalog
from mclabel.run.shards.journal import FOLDER as JOURNALS
from mclabel.run.shards.journal import journal_lines
from mclabel.run.shards.labels import named_rollouts
from mclabel.run.shards.manifest import PRIORS, missing_priors, priors_name, read_priors
from mclabel.run.shards.opinions import holds_opinions
from mclabel.run.shards.plan import FOLDER as PLAN
from mclabel.run.shards.shard import disagreements, read_shard
from mclabel.run.shards.store import Store, damaged
from mclabel.run.shards.trees import FOLDER, is_search, read_block, tree_file
from mclabel.run.verify.blocks import PlannedProblems, RepeatedIds, check_opinions, name_hashes
from mclabel.run.verify.single_files import SingleFiles, Verification, check_training, is_training


def verify(
    store: Store, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Verification:
    """Read everything that a run of labels, of scores or of opinions holds, or a training.

    Args:
        store: the run's store.
        on_progress: called with shards read and in all.

    Raises:
        ShardError: there is no run, or the store fails.
    """
    result = Verification(run=store.location)
    if is_training(store):
        check_training(store, result)
        return result
    files = SingleFiles(store, result)
    files.check()
    if holds_opinions(store):
        result.holds = "opinions"
        check_opinions(store, result, files, on_progress)
        return result
    blocks: Container[str] = ()
    used_priors = set[str]()
    try:
        catalog, planned = read_catalog(store, must_be_whole=False), PlannedProblems(store)
    except DamagedFile as error:
        result.add(error)
        result.notes.append(
            "labels and rollouts were not read, because their locations are unknown"
        )
    else:
        if not catalog.files and not store.names(PLAN) and not files.has_manifest:
            raise ShardError(f"{store.location}: holds no run. Give the `out` of a labelling job")
        shards = _LabelShards(store, result, files, catalog, planned)
        shards.check(on_progress)
        blocks, used_priors = catalog.blocks, shards.used_priors
    _check_priors(store, result, used_priors)
    _check_journals(store, result, blocks)
    return result


class _LabelShards:
    """Checks labels, rollouts and trees against the plan and catalogs that locate them."""

    def __init__(
        self,
        store: Store,
        result: Verification,
        files: SingleFiles,
        catalog: Catalog,
        planned: PlannedProblems,
    ) -> None:
        self._store, self._result, self._files = store, result, files
        self._catalog, self._planned = catalog, planned
        self._named: set[str] = set()
        """Files of rollouts and trees that labels shards name."""
        self.used_priors: set[str] = set()
        """Ids of the priors that labels depend on."""
        self._unread: set[str] = set()
        """Blocks and merges whose labels are damaged, so that their rollouts files are unknown."""

    def check(self, on_progress: Callable[[int, int], None]) -> None:
        """Read all shards, and note files that none of them needs."""
        catalog = self._catalog
        for loss in catalog.losses(self._store):
            self._result.add(loss)
        recorded = {*catalog.blocks, *chain.from_iterable(catalog.lost.values())}
        self._files.check_complete(recorded, len(recorded), "labels")
        ids, by_file = RepeatedIds(), catalog.by_file()
        for done, name in enumerate(catalog.files, 1):
            try:
                self._check_shard(name, by_file[name], ids)
            except DamagedFile as error:
                if self._store.read(error.name) is None and self._has_merged():
                    self._result.notes.append(
                        "shards were merged during the check: run verify again"
                    )
                    break
                self._result.add(error)
            on_progress(done, len(catalog.files))
        for block, other_block, count, noun in ids.pairs():
            name, other = catalog.blocks[block].file, catalog.blocks[other_block].file
            fault = f"{count:,} of its {noun} also occur in {other}"
            if name == other:
                fault += f" (blocks {block} and {other_block})"
            self._result.report(name, fault, "Delete one of the two and run the job again")
        self._files.check_configurations()
        self._note_strangers()

    def _check_shard(self, name: str, blocks: list[str], ids: RepeatedIds) -> None:
        result = self._result
        result.num_shards += 1
        result.num_blocks += len(blocks)
        try:
            metadata, labels = read_shard(self._store, name, "labels")
        except DamagedFile:
            self._unread.update((_stem(name), *blocks))
            raise
        self._files.add_stamp(name, metadata)
        parts = self._catalog.parts(self._store, name, blocks, metadata, labels)
        for block, part in zip(blocks, parts, strict=True):
            result.num_solutions += part.num_rows
            ids.add(block, part)
        self._check_plan(name, blocks, metadata, parts)
        self._check_trees(metadata)
        self.used_priors.update(pc.unique(labels["priors"]).drop_null().to_pylist())
        if metadata["rollouts"] is None:
            return
        self._named.add(metadata["rollouts"])
        rollouts = named_rollouts(self._store, metadata)
        result.num_rollouts += rollouts.num_rows
        for fault in disagreements(labels, rollouts):
            result.add(damaged(self._store, name, fault))
        cost = metadata.get("cost") if "block" in metadata else None
        if cost is not None and cost["num_rollouts"] != rollouts.num_rows:
            fault = f"holds {rollouts.num_rows:,} rollouts, but {cost['num_rollouts']:,} were made"
            result.add(damaged(self._store, metadata["rollouts"], fault))

    def _check_trees(self, metadata: Mapping[str, Any]) -> None:
        """Check the trees of a block; a run that is no search has none."""
        if is_search(metadata.get("config")):
            block, attempt = metadata["block"], metadata["attempt"]
            self._named.add(tree_file(block, attempt))
            try:
                read_block(self._store, block, attempt)
            except DamagedFile as error:
                self._result.add(error)

    def _check_plan(
        self, name: str, blocks: list[str], metadata: dict[str, Any], parts: list[pa.Table]
    ) -> None:
        """Compare the problems of a shard's blocks with those of the plan."""
        if not self._planned.is_there:
            return
        without_rows = self._catalog.without_rows(blocks, metadata)
        problems = set(chain.from_iterable(without_rows.values()))
        for part in parts:
            problems.update(pc.unique(part["problem_id"]).to_pylist())
        present, planned = set(name_hashes(problems).tolist()), self._planned.of(blocks)
        if present != planned:
            fault = (
                f"lacks {len(planned - present):,} problems that the plan assigns to it, and holds "
                f"{len(present - planned):,} others"
            )
            self._result.add(damaged(self._store, name, fault))
        hashes = set(name_hashes(without_rows["set_aside"]).tolist())
        for block in blocks:
            if hashes & self._planned.of([block]):
                self._files.check_note(block)

    def _has_merged(self) -> bool:
        """Return whether a merge has ended since the catalog was read."""
        return read_catalog(self._store, must_be_whole=False).number > self._catalog.number

    def _unnamed(self, folder: str) -> list[str]:
        """Return the files of a folder that no labels shard names."""
        return [
            name
            for name in self._store.names(folder)
            if name not in self._named and _stem(name) not in self._unread
        ]

    def _note_strangers(self) -> None:
        """Note files that nothing depends on."""
        catalog, notes = self._catalog, self._result.notes
        if unnamed := self._unnamed("rollouts") + self._unnamed(f"{MERGED}/rollouts"):
            notes.append(
                f"{len(unnamed):,} rollouts files belong to no labels shard: they are of "
                "unfinished blocks or killed attempts, and are deleted when the job is done"
            )
        if trees := self._unnamed(FOLDER):
            notes.append(
                f"{len(trees):,} files in {FOLDER}/ belong to no labels shard, such as {trees[0]}: "
                "they are of unfinished blocks or killed attempts, or do not belong to the run, "
                "and are not read"
            )
        if catalog.merged_away:
            notes.append(
                f"{len(catalog.merged_away):,} labels shards were merged into others; the next "
                "`mclabel compact` deletes them"
            )
        if catalog.foreign:
            notes.append(
                f"{len(catalog.foreign):,} files in labels/ belong to no block of the plan and are "
                f"not read: {', '.join(catalog.foreign[:5])}"
                + (", …" if len(catalog.foreign) > 5 else "")
            )
        folders = ("labels", COMPACTED, f"{MERGED}/labels")
        ours = {*catalog.merged_away, *catalog.foreign, *catalog.files}
        strange = [
            name
            for folder in folders
            for name in self._store.listed(folder)
            if name not in ours and not (folder == COMPACTED and name.endswith(".parquet"))
        ]
        if strange:
            notes.append(
                f"{len(strange):,} files do not belong to the run: {', '.join(sorted(strange)[:5])}"
                + (", …" if len(strange) > 5 else "")
            )


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _check_priors(store: Store, result: Verification, used: Set[str]) -> None:
    """Check the priors that labels of `posterior` depend on."""
    present = {
        name.removeprefix(f"{PRIORS}/").removesuffix(".json") for name in store.names(PRIORS)
    }
    for identity in sorted(used - present):
        result.add(missing_priors(store, identity))
    for identity in sorted(present):
        result.num_priors += 1
        try:
            if read_priors(store, identity) is None:
                result.add(damaged(store, priors_name(identity), "no file of priors"))
        except DamagedFile as error:
            result.add(error)


def _check_journals(store: Store, result: Verification, blocks: Container[str]) -> None:
    """Check the journals of unfinished blocks."""
    num_late = 0
    for name in store.names(JOURNALS):
        content = store.read(name)
        if content is None:
            continue
        result.num_journals += 1
        num_late += name.split("/")[1] in blocks
        try:
            list(journal_lines(content))
        except ValueError as error:
            result.add(damaged(store, name, f"damaged ({error})"))
    if num_late:
        result.notes.append(
            f"{num_late:,} journals are of finished blocks; the next run deletes them"
        )
