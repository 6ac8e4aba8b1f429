"""Checks that the blocks of labelling and judging runs hold the items that the plan assigns."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.core.errors import DamagedFile
from mclabel.run.shards.opinions import FOLDER, parse_block_id, read_opinions_block
from mclabel.run.shards.plan import read_plan_parts, read_planned_blocks
from mclabel.run.shards.store import Store, make_damaged_file_error
from mclabel.run.verify.single_files import SingleFilesCheck, Verification

_ENTRY = np.dtype([("block", np.uint64), ("problem", np.uint64)])


class PlannedProblems:
    """Problems that the plan assigns to each block, except superseded ones (changed or removed
    later).

    Block and problem ids are kept as 64-bit hashes, so that a problem needs 16 bytes.
    """

    def __init__(self, store: Store) -> None:
        """Read the plan of a run.

        Args:
            store: store of the run.

        Raises:
            DamagedFile: a part of the plan is damaged.
        """
        planned, superseded = [np.zeros(0, _ENTRY)], [np.zeros(0, _ENTRY)]
        for part in read_plan_parts(store):
            planned.append(_hash_block_and_item_ids(part.filter(pc.invert(part["superseded"]))))
            superseded.append(_hash_block_and_item_ids(part.filter(part["superseded"])))
        self.is_there = len(planned) > 1
        """True if the run has a plan. Imported runs and runs that were graded again have none."""
        self._entries = np.setdiff1d(np.concatenate(planned), np.concatenate(superseded))

    def item_hashes_of_block(self, block: str) -> Set[int]:
        """Return the hashes of the ids of the items that are planned for a block.

        Items are problems; in a run of `mclabel judge` they are solutions.
        """
        (key,) = hash_names([block])
        low = np.searchsorted(self._entries["block"], key, side="left")
        high = np.searchsorted(self._entries["block"], key, side="right")
        return set(self._entries["problem"][low:high].tolist())

    def find_fault(self, block: str, items: Iterable[str], noun: str) -> str | None:
        """Return how the items of a block differ from those that are planned for it; None if they
        are the same, or if the run has no plan.
        """
        present, planned = set(hash_names(items).tolist()), self.item_hashes_of_block(block)
        if not self.is_there or present == planned:
            return None
        return (
            f"lacks {len(planned - present):,} {noun} that the plan assigns to it, and holds "
            f"{len(present - planned):,} other {noun}"
        )


def _hash_block_and_item_ids(part: pa.Table) -> NDArray[np.void]:
    entries = np.zeros(part.num_rows, _ENTRY)
    entries["block"] = hash_names(part["block"].to_pylist())
    entries["problem"] = hash_names(part["item_id"].to_pylist())
    return entries


class RepeatedIdsFinder:
    """Finds problems that occur in two blocks, and solutions that occur twice.

    Ids are kept as 64-bit hashes with a block number, so that an id needs 12 bytes.
    """

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._solutions: list[NDArray[np.uint64]] = []
        self._problems: list[NDArray[np.uint64]] = []

    def add(self, block: str, labels: pa.Table) -> None:
        """Add the labels of a block.

        Args:
            block: id of the block.
            labels: rows of the block's labels.
        """
        self._blocks.append(block)
        self._solutions.append(hash_names(labels["solution_id"].to_pylist()))
        self._problems.append(hash_names(pc.unique(labels["problem_id"]).to_pylist()))

    def find_repeats(self) -> Iterator[tuple[str, str, int, str]]:
        """Yield pairs of blocks that share problems, or that share only solutions.

        Yields:
            A tuple: the ids of the two blocks, which are equal if one block holds a solution twice;
            the number of shared ids; and their kind, `problems` or `solutions`.
        """
        seen = set()
        for noun, parts in (("problems", self._problems), ("solutions", self._solutions)):
            for pair, count in sorted(_count_shared_hashes(parts).items()):
                if pair not in seen:
                    seen.add(pair)
                    yield self._blocks[pair[0]], self._blocks[pair[1]], count, noun


def hash_names(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return 64-bit hashes of names."""
    digests = (hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(b"".join(digests), dtype=np.uint64)


def _count_shared_hashes(parts: list[NDArray[np.uint64]]) -> Counter[tuple[int, int]]:
    """Count the hashes that each pair of arrays shares, by the indices of the two arrays."""
    if not parts:
        return Counter()
    hashes = np.concatenate(parts)
    numbers = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
    order = np.argsort(hashes, kind="stable")
    hashes, numbers = hashes[order], numbers[order]
    same = np.flatnonzero(hashes[1:] == hashes[:-1])
    return Counter((int(numbers[i]), int(numbers[i + 1])) for i in same)


def check_opinions(
    store: Store,
    result: Verification,
    files: SingleFilesCheck,
    on_progress: Callable[[int, int], None],
) -> None:
    """Read all shards of a run of opinions, and record findings.

    Args:
        store: store of the run.
        result: verification result, to which findings and counts are added.
        files: checks of the run's single files, to which the shards' metadata is passed.
        on_progress: called with the number of shards read and the number of all shards.
    """
    try:
        plan, planned = read_planned_blocks(store), PlannedProblems(store)
    except DamagedFile as error:
        result.add_error(error)
        result.notes.append(
            "opinions were not read, because it is unknown which shards belong to the run"
        )
        return
    names = {
        parse_block_id(name): name for name in store.names(FOLDER) if name.endswith(".parquet")
    }
    blocks = sorted(block for block in names if plan is None or block in plan.names)
    files.check_complete(set(blocks), FOLDER)
    places: dict[int, str] = {}
    for done, block in enumerate(blocks, 1):
        result.num_blocks += 1
        try:
            metadata, table = read_opinions_block(store, block)
            files.add_shard_metadata(names[block], metadata)
            superseded = (
                frozenset() if plan is None else plan.superseded_ids.get(block, frozenset())
            )
            ids = [name for name in table["id"].to_pylist() if name not in superseded]
            left_out = [name for name in metadata["set_aside"] if name not in superseded]
            result.num_solutions += len(ids)
            scores = pc.list_flatten(table["scores"])
            if scores.null_count or not pc.all(pc.is_finite(scores), min_count=0).as_py():
                raise make_damaged_file_error(
                    store, names[block], "holds a score that is not a finite number"
                )
            if left_out:
                files.check_set_aside_marker(block)
            if fault := planned.find_fault(block, {*ids, *left_out}, "solutions"):
                raise make_damaged_file_error(store, names[block], fault)
            for identity in hash_names(ids).tolist():
                if (other := places.setdefault(identity, names[block])) != names[block]:
                    raise make_damaged_file_error(
                        store, names[block], f"holds solutions that {other} also holds"
                    )
        except DamagedFile as error:
            result.add_error(error)
        on_progress(done, len(blocks))
    files.check_configurations()
    if strangers := len(names) - len(blocks):
        result.notes.append(
            f"{strangers:,} files in {FOLDER}/ do not belong to any block of the plan and are not "
            "read"
        )
