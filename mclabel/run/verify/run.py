"""Checks that a run's files are unchanged since they were written, and are consistent.

Every file is read once, one shard at a time. Memory holds a hash and a block number for each
solution and problem, to find duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Set
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mclabel.core.errors import DamagedFile, ShardError
from mclabel.run.shards.catalog import FOLDER as LABELS
from mclabel.run.shards.catalog import (
    Catalog,
    make_labels_shard_name,
    read_catalog,
    read_labels_shard,
)
from mclabel.run.shards.journal import FOLDER as JOURNALS
from mclabel.run.shards.journal import parse_journal_lines
from mclabel.run.shards.labels import read_shard_rollouts
from mclabel.run.shards.manifest import (
    PRIORS,
    make_missing_priors_error,
    make_priors_file_name,
    read_priors,
)
from mclabel.run.shards.opinions import holds_opinions
from mclabel.run.shards.plan import FOLDER as PLAN
from mclabel.run.shards.shard import find_count_disagreements
from mclabel.run.shards.store import Store, describe_damaged_file_remedy, make_damaged_file_error
from mclabel.run.shards.trees import FOLDER, is_search_config, make_tree_file_name, read_block_trees
from mclabel.run.verify.blocks import PlannedProblems, RepeatedIdsFinder, check_opinions, hash_names
from mclabel.run.verify.single_files import (
    SingleFilesCheck,
    Verification,
    check_training_run,
    is_training_run,
)


def verify(
    store: Store, *, on_progress: Callable[[int, int], None] = lambda *_: None
) -> Verification:
    """Read and check all files of a run of labels, scores or opinions, or of a training.

    Args:
        store: store of the run.
        on_progress: called with the number of shards read and the number of all shards.

    Raises:
        ShardError: the location does not hold a run, or the store fails.
    """
    result = Verification(run=store.location)
    if is_training_run(store):
        check_training_run(store, result)
        return result
    files = SingleFilesCheck(store, result)
    files.check()
    if holds_opinions(store):
        result.holds = "opinions"
        check_opinions(store, result, files, on_progress)
        return result
    blocks: Container[str] = ()
    used_priors = set[str]()
    try:
        catalog, planned = read_catalog(store, require_complete=False), PlannedProblems(store)
    except DamagedFile as error:
        result.add_error(error)
        result.notes.append(
            "labels and rollouts were not read, because their locations are unknown"
        )
    else:
        if not catalog.blocks and not store.names(PLAN) and not files.has_manifest:
            raise ShardError(f"{store.location}: holds no run. Give the `out` of a labelling job")
        shards = _LabelShardsCheck(store, result, files, catalog, planned)
        shards.check(on_progress)
        blocks, used_priors = catalog.blocks, shards.used_priors
    _check_priors(store, result, used_priors)
    _check_journals(store, result, blocks)
    return result


class _LabelShardsCheck:
    """Checks the shards of labels, rollouts and trees against the run's plan and each other."""

    def __init__(
        self,
        store: Store,
        result: Verification,
        files: SingleFilesCheck,
        catalog: Catalog,
        planned: PlannedProblems,
    ) -> None:
        self._store, self._result, self._files = store, result, files
        self._catalog, self._planned = catalog, planned
        self._named: set[str] = set()
        """Files of rollouts and trees to which labels shards refer."""
        self.used_priors: set[str] = set()
        """Ids of the priors that labels depend on."""
        self._unread: set[str] = set()
        """Ids of blocks whose labels are damaged, so that it is unknown which rollouts files belong
        to them."""

    def check(self, on_progress: Callable[[int, int], None]) -> None:
        """Read all shards, and add notes about files to which no shard refers."""
        blocks, ids = self._catalog.blocks, RepeatedIdsFinder()
        self._files.check_complete(blocks, LABELS)
        for done, block in enumerate(blocks, 1):
            try:
                self._check_shard(block, ids)
            except DamagedFile as error:
                self._result.add_error(error)
            on_progress(done, len(blocks))
        for block, other, count, noun in ids.find_repeats():
            name = make_labels_shard_name(block)
            if block == other:
                self._result.add_finding(
                    name, f"holds {count:,} {noun} twice", describe_damaged_file_remedy(name)
                )
                continue
            fault = f"{count:,} of its {noun} also occur in {make_labels_shard_name(other)}"
            self._result.add_finding(
                name, fault, "Delete one of the two files and run the job again"
            )
        self._files.check_configurations()
        self._note_foreign_files()

    def _check_shard(self, block: str, ids: RepeatedIdsFinder) -> None:
        result, name = self._result, make_labels_shard_name(block)
        result.num_blocks += 1
        try:
            metadata, labels = read_labels_shard(self._store, block)
        except DamagedFile:
            self._unread.add(block)
            raise
        self._files.add_shard_metadata(name, metadata)
        current = self._catalog.drop_superseded_rows(block, labels)
        result.num_solutions += current.num_rows
        ids.add(block, current)
        self._check_plan(block, metadata, current)
        self._check_trees(metadata)
        self.used_priors.update(pc.unique(labels["priors"]).drop_null().to_pylist())
        if metadata["rollouts"] is None:
            return
        self._named.add(metadata["rollouts"])
        rollouts = read_shard_rollouts(self._store, metadata)
        result.num_rollouts += rollouts.num_rows
        for fault in find_count_disagreements(labels, rollouts):
            result.add_error(make_damaged_file_error(self._store, name, fault))
        cost = metadata.get("cost")
        if cost is not None and cost["num_rollouts"] != rollouts.num_rows:
            fault = f"holds {rollouts.num_rows:,} rollouts, but {cost['num_rollouts']:,} were made"
            result.add_error(make_damaged_file_error(self._store, metadata["rollouts"], fault))

    def _check_trees(self, metadata: Mapping[str, Any]) -> None:
        """Check the search trees of a block; only runs of a search have trees."""
        if is_search_config(metadata.get("config")):
            block, attempt = metadata["block"], metadata["attempt"]
            self._named.add(make_tree_file_name(block, attempt))
            try:
                read_block_trees(self._store, block, attempt)
            except DamagedFile as error:
                self._result.add_error(error)

    def _check_plan(self, block: str, metadata: dict[str, Any], labels: pa.Table) -> None:
        """Compare the problems of a block with the problems that the plan assigns."""
        problems_without_rows = self._catalog.problems_without_rows(block, metadata)
        problems = {
            *chain(*problems_without_rows.values()),
            *pc.unique(labels["problem_id"]).to_pylist(),
        }
        if fault := self._planned.find_fault(block, problems, "problems"):
            self._result.add_error(
                make_damaged_file_error(self._store, make_labels_shard_name(block), fault)
            )
        planned = self._planned.item_hashes_of_block(block)
        if planned & set(hash_names(problems_without_rows["set_aside"]).tolist()):
            self._files.check_set_aside_marker(block)

    def _list_unnamed_files(self, folder: str) -> list[str]:
        """Return the files of a folder to which no labels shard refers."""
        return [
            name
            for name in self._store.names(folder)
            if name not in self._named
            and name.rpartition("/")[2].partition(".")[0] not in self._unread
        ]

    def _note_foreign_files(self) -> None:
        """Add notes about files that do not belong to the run's results."""
        catalog, notes = self._catalog, self._result.notes
        if unnamed := self._list_unnamed_files("rollouts"):
            notes.append(
                f"{len(unnamed):,} rollouts files do not belong to any labels shard: they come "
                "from unfinished blocks or killed attempts, and are deleted when the job is done"
            )
        if trees := self._list_unnamed_files(FOLDER):
            notes.append(
                f"{len(trees):,} files in {FOLDER}/ do not belong to any labels shard, such as "
                f"{trees[0]}: they come from unfinished blocks or killed attempts, or are foreign "
                "to the run, and are not read"
            )
        if catalog.foreign_files:
            notes.append(
                f"{len(catalog.foreign_files):,} files in labels/ do not belong to any block of "
                f"the plan and are not read: {', '.join(catalog.foreign_files[:5])}"
                + (", …" if len(catalog.foreign_files) > 5 else "")
            )
        ours = {*catalog.foreign_files, *map(make_labels_shard_name, catalog.blocks)}
        foreign = sorted(name for name in self._store.iter_names(LABELS) if name not in ours)
        if foreign:
            notes.append(
                f"{len(foreign):,} files do not belong to the run: {', '.join(foreign[:5])}"
                + (", …" if len(foreign) > 5 else "")
            )


def _check_priors(store: Store, result: Verification, used: Set[str]) -> None:
    """Check the priors on which labels of the `posterior` estimator depend."""
    present = {
        name.removeprefix(f"{PRIORS}/").removesuffix(".json") for name in store.names(PRIORS)
    }
    for identity in sorted(used - present):
        result.add_error(make_missing_priors_error(store, identity))
    for identity in sorted(present):
        result.num_priors += 1
        try:
            if read_priors(store, identity) is None:
                result.add_error(
                    make_damaged_file_error(
                        store, make_priors_file_name(identity), "is not a file of priors"
                    )
                )
        except DamagedFile as error:
            result.add_error(error)


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
            list(parse_journal_lines(content))
        except ValueError as error:
            result.add_error(make_damaged_file_error(store, name, f"damaged ({error})"))
    if num_late:
        result.notes.append(
            f"{num_late:,} journals belong to finished blocks; the next run deletes them"
        )
