"""Checks that a run's files are what was written, and that they agree with each other.

Every file is read once, a shard at a time. Two numbers per solution and problem are kept in memory,
to find duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Mapping
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
from mclabel.run.verify.blocks import Doubles, PlannedProblems, check_opinions, name_hashes
from mclabel.run.verify.single_files import SingleFiles, Verification, check_training, is_training


def verify(
    store: Store, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Verification:
    """Read everything that a run of labels, of scores or of opinions holds, or a training.

    Args:
        store: of the run.
        on_progress: called with shards read and in all.

    Raises:
        ShardError: there is no run, or the store fails.
    """
    found = Verification(run=store.location)
    if is_training(store):
        check_training(store, found)
        return found
    files = SingleFiles(store, found)
    files.check()
    if holds_opinions(store):
        found.holds = "opinions"
        check_opinions(store, found, files, on_progress)
        return found
    work = _Verifying(store, found, files)
    work.shards(on_progress)
    work.priors()
    work.journals()
    return found


class _Verifying:
    def __init__(self, store: Store, found: Verification, files: SingleFiles) -> None:
        self._store, self.found, self._files = store, found, files
        self._catalog: Catalog | None = None
        self._planned: PlannedProblems | None = None
        self._trees = TreeFiles(store, found)
        self._rests_on: set[str] = set()
        """Ids of the priors that labels depend on."""
        self._unread: set[str] = set()
        """Blocks and merges whose labels are damaged, so that their rollouts files are unknown."""

    def shards(self, on_progress: Callable[[int, int], None]) -> None:
        """Check labels and rollouts, and the plan and catalogs that locate them."""
        try:
            self._catalog = catalog = read_catalog(self._store, must_be_whole=False)
            self._planned = PlannedProblems(self._store)
        except DamagedFile as error:
            self.found.add(error)
            self.found.notes.append(
                "labels and rollouts were not read, because their locations are unknown"
            )
            return
        if not catalog.files and not self._store.names(PLAN) and not self._files.has_manifest:
            raise ShardError(
                f"{self._store.location}: holds no run. Give the `out` of a labelling job"
            )
        for loss in catalog.losses(self._store):
            self.found.add(loss)
        there = {*catalog.blocks, *chain.from_iterable(catalog.lost.values())}
        self._files.check_complete(there, len(there), "labels")
        doubles, by_file, named = Doubles(), catalog.by_file(), set[str]()
        for done, name in enumerate(catalog.files, 1):
            try:
                self._shard(name, by_file[name], doubles, named)
            except DamagedFile as error:
                if self._store.read(error.name) is None and self._has_merged():
                    self.found.notes.append("shards were merged during the check: run verify again")
                    break
                self.found.add(error)
            on_progress(done, len(catalog.files))
        for double in doubles.found():
            name, other = self._place(double.block), self._place(double.other)
            fault = f"{double.count:,} of its {double.what} also occur in {other}"
            if name == other:
                fault += f" (blocks {double.block} and {double.other})"
            self.found.report(name, fault, "Delete one of the two and run the job again")
        self._files.check_configurations()
        self._note_strangers(catalog, named)

    def _shard(self, name: str, blocks: list[str], doubles: Doubles, named: set[str]) -> None:
        found = self.found
        found.num_shards += 1
        found.num_blocks += len(blocks)
        try:
            metadata, labels = read_shard(self._store, name, "labels")
        except DamagedFile:
            self._unread.update((name.rpartition("/")[2].partition(".")[0], *blocks))
            raise
        self._files.add_stamp(name, metadata)
        assert self._catalog is not None
        parts = self._catalog.parts(self._store, name, blocks, metadata, labels)
        for block, part in zip(blocks, parts, strict=True):
            found.num_solutions += part.num_rows
            doubles.add(block, part)
        self._check_plan(name, blocks, metadata, parts)
        self._trees.check(metadata)
        for rests_on in pc.unique(labels["priors"]).to_pylist():
            if rests_on is not None:
                self._rests_on.add(rests_on)
        if metadata["rollouts"] is None:
            return
        named.add(metadata["rollouts"])
        rollouts = named_rollouts(self._store, metadata)
        found.num_rollouts += rollouts.num_rows
        for fault in disagreements(labels, rollouts):
            self.found.add(damaged(self._store, name, fault))
        cost = metadata.get("cost") if "block" in metadata else None
        if cost is not None and cost["num_rollouts"] != rollouts.num_rows:
            fault = f"holds {rollouts.num_rows:,} rollouts, but {cost['num_rollouts']:,} were made"
            self.found.add(damaged(self._store, metadata["rollouts"], fault))

    def _check_plan(
        self, name: str, blocks: list[str], metadata: dict[str, Any], parts: list[pa.Table]
    ) -> None:
        """Compare the problems of a shard's blocks with those of the plan."""
        assert self._catalog is not None and self._planned is not None
        if not self._planned.is_there:
            return
        problems = {one for part in parts for one in pc.unique(part["problem_id"]).to_pylist()}
        for without_rows in self._catalog.without_rows(blocks, metadata).values():
            problems.update(without_rows)
        there, planned = set(name_hashes(problems).tolist()), self._planned.of(blocks)
        if there != planned:
            fault = (
                f"lacks {len(planned - there):,} problems that the plan assigns to it, and holds "
                f"{len(there - planned):,} others"
            )
            self.found.add(damaged(self._store, name, fault))
        left_out = self._catalog.without_rows(blocks, metadata)["set_aside"]
        hashes = set(name_hashes(left_out).tolist())
        for block in blocks:
            if hashes & self._planned.of([block]):
                self._files.check_note(block)

    def _has_merged(self) -> bool:
        """Whether a merge has ended since the catalog was read."""
        assert self._catalog is not None
        return read_catalog(self._store, must_be_whole=False).number > self._catalog.number

    def _place(self, block: str) -> str:
        assert self._catalog is not None
        return self._catalog.blocks[block].file

    def _note_strangers(self, catalog: Catalog, named: set[str]) -> None:
        """Note files that nothing depends on."""
        there = chain(self._store.listed("rollouts"), self._store.listed(f"{MERGED}/rollouts"))
        unnamed = sum(
            name not in named and name.rpartition("/")[2].partition(".")[0] not in self._unread
            for name in there
        )
        if unnamed:
            self.found.notes.append(
                f"{unnamed:,} rollouts files belong to no labels shard: they are of unfinished "
                "blocks or killed attempts, and are deleted when the job is done"
            )
        self._trees.note_strangers(self._unread)
        if catalog.merged_away:
            self.found.notes.append(
                f"{len(catalog.merged_away):,} labels shards were merged into others; the next "
                "`mclabel compact` deletes them"
            )
        if catalog.foreign:
            self.found.notes.append(
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
            self.found.notes.append(
                f"{len(strange):,} files do not belong to the run: {', '.join(sorted(strange)[:5])}"
                + (", …" if len(strange) > 5 else "")
            )

    def priors(self) -> None:
        """Check the priors that labels of `posterior` depend on."""
        there = {
            name.removeprefix(f"{PRIORS}/").removesuffix(".json")
            for name in self._store.names(PRIORS)
        }
        for identity in sorted(self._rests_on - there):
            self.found.add(missing_priors(self._store, identity))
        for identity in sorted(there):
            self.found.num_priors += 1
            try:
                if read_priors(self._store, identity) is None:
                    self.found.add(damaged(self._store, priors_name(identity), "no file of priors"))
            except DamagedFile as error:
                self.found.add(error)

    def journals(self) -> None:
        """Check the journals of unfinished blocks."""
        late: Counter[bool] = Counter()
        blocks = {} if self._catalog is None else self._catalog.blocks
        for name in self._store.names(JOURNALS):
            content = self._store.read(name)
            if content is None:
                continue
            self.found.num_journals += 1
            late[name.split("/")[1] in blocks] += 1
            try:
                list(journal_lines(content))
            except ValueError as error:
                self.found.add(damaged(self._store, name, f"damaged ({error})"))
        if late[True]:
            self.found.notes.append(
                f"{late[True]:,} journals are of finished blocks; the next run deletes them"
            )


class TreeFiles:
    """The files of trees that labels shards of a search rest on."""

    def __init__(self, store: Store, found: Verification) -> None:
        """Prepare to check.

        Args:
            store: of the run.
            found: receives the findings.
        """
        self._store, self._found = store, found
        self._named: set[str] = set()

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Check the trees of a block.

        Args:
            metadata: of its labels shard; that of a run which is no search names no trees.
        """
        if not is_search(metadata.get("config")):
            return
        block, attempt = metadata["block"], metadata["attempt"]
        self._named.add(tree_file(block, attempt))
        try:
            read_block(self._store, block, attempt)
        except DamagedFile as error:
            self._found.add(error)

    def note_strangers(self, unread: Container[str]) -> None:
        """Note the files that no labels shard names.

        Args:
            unread: blocks whose labels shard could not be read.
        """
        strangers = [
            name
            for name in self._store.names(FOLDER)
            if name not in self._named and name.rpartition("/")[2].partition(".")[0] not in unread
        ]
        if strangers:
            self._found.notes.append(
                f"{len(strangers):,} files in {FOLDER}/ belong to no labels shard, such as "
                f"{strangers[0]}: they are of unfinished blocks or killed attempts, or do not "
                "belong to the run, and are not read"
            )
