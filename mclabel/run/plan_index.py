"""In-memory index of a run's plan, which maps items to blocks, and its comparison with an input.

The index keeps about 40 bytes per item: hashes of its id and contents, the number of its block, and
its position in the plan.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.run.shards.plan import CONTENT_BYTES, META_BYTES, read_plan_parts, split_into_chunks
from mclabel.run.shards.store import Store
from mclabel.run.task import Item, Items

CHUNK = 4096
"""Number of items that are looked up in one batch."""
MAX_NAMED = 5
"""Maximum number of items that a message lists."""

Hashes = NDArray[np.uint64]


@dataclass(frozen=True, kw_only=True)
class InputChanges:
    """Differences between a job's input and the input that its plan records."""

    num_added: int = 0
    """Number of items that the plan does not have."""
    num_changed: int = 0
    """Number of items with changed content (a problem's text, gold or given solution)."""
    num_gone: int = 0
    """Number of planned items that the input lacks."""
    num_other_meta: int = 0
    """Number of items that differ only in columns without effect on the result. Their recorded
    results keep the old values of these columns."""
    changed: tuple[str, ...] = ()
    """Ids of the first changed items."""


class PlanIndex:
    """Latest state of every item in a plan, including superseded items, whose results no longer
    count.

    The arrays have one entry per item, sorted by the hash of the item's id.
    """

    def __init__(self) -> None:
        """Start with an empty index."""
        self.id_hashes: Hashes = np.empty(0, np.uint64)
        """Sorted hashes of the items' ids."""
        self.content_hashes: Hashes = np.empty(0, np.uint64)
        """First eight bytes of the digest of each item's content."""
        self.extra_hashes: Hashes = np.empty(0, np.uint64)
        """First eight bytes of the digest of each item's extras, the columns without effect on the
        result."""
        self.block_indices: NDArray[np.int64] = np.empty(0, np.int64)
        """Index in `block_ids` of each item's block; -1 if the item was superseded and not planned
        again."""
        self.row_numbers: NDArray[np.int64] = np.empty(0, np.int64)
        """Row number of each item in the plan, over all parts, from 0."""
        self.block_ids: list[str] = []
        """Ids of the blocks, in the order of the plan."""
        self.num_parts = 0

    @classmethod
    def from_parts(cls, parts: Iterable[pa.Table]) -> Self:
        """Build the index from the parts of a plan."""
        plan = cls()
        columns: list[tuple[NDArray[Any], ...]] = []
        for part in parts:
            plan.num_parts += 1
            columns.append(plan._index_part(part))
        if not columns:
            return plan
        ids, contents, metas, blocks = (np.concatenate(c) for c in zip(*columns, strict=True))
        by_id = np.argsort(ids, kind="stable")
        last = by_id[np.append(ids[by_id][1:] != ids[by_id][:-1], True)]
        plan.id_hashes, plan.content_hashes, plan.extra_hashes = (
            ids[last],
            contents[last],
            metas[last],
        )
        plan.block_indices, plan.row_numbers = blocks[last], last
        return plan

    def find_by_id_hash(self, ids: Hashes) -> NDArray[np.int64]:
        """Return the indices of items in the arrays; -1 if missing.

        Args:
            ids: hashes of the items' ids (`hash_ids`).
        """
        if not len(self.id_hashes):
            return np.full(len(ids), -1, np.int64)
        plan_indices = np.minimum(np.searchsorted(self.id_hashes, ids), len(self.id_hashes) - 1)
        return np.where(self.id_hashes[plan_indices] == ids, plan_indices, -1)

    def find_items(self, items: Items) -> NDArray[np.int64]:
        """Return the indices of all items of an input in the arrays; -1 if missing."""
        plan_indices = [
            self.find_by_id_hash(hash_ids(item.id for item in chunk))
            for chunk in split_into_chunks(items, CHUNK)
        ]
        return np.concatenate(plan_indices) if plan_indices else np.empty(0, np.int64)

    def _index_part(self, part: pa.Table) -> tuple[NDArray[Any], ...]:
        superseded = part.column("superseded").to_numpy()
        named = part.column("block").combine_chunks().dictionary_encode()
        blocks = named.indices.to_numpy() + len(self.block_ids)
        self.block_ids += named.dictionary.to_pylist()
        return (
            hash_ids(part.column("item_id").to_pylist()),
            _read_first_bytes(part.column("content"), CONTENT_BYTES),
            _read_first_bytes(part.column("meta"), META_BYTES),
            np.where(superseded, -1, blocks),
        )


@dataclass(frozen=True, kw_only=True)
class PlanComparison:
    """Comparison of an input with a plan."""

    plan_indices: NDArray[np.int64]
    """Index of each input item in the plan index; -1 if the plan has never had the item."""
    is_new: NDArray[np.bool_]
    """For each input item, True if no block holds the item at present."""
    is_changed: NDArray[np.bool_]
    """For each input item, True if its content differs from the planned content."""
    missing_plan_indices: NDArray[np.int64]
    """Indices of planned items that the input lacks, in the order of the plan."""
    changes: InputChanges
    """Counts of the differences."""

    @classmethod
    def compare(cls, items: Items, plan: PlanIndex) -> Self:
        """Compare an input with a plan.

        Args:
            items: items of the input.
            plan: index of the plan.
        """
        if not plan.num_parts:
            count = len(items)
            return cls(
                plan_indices=np.full(count, -1, np.int64),
                is_new=np.ones(count, bool),
                is_changed=np.zeros(count, bool),
                missing_plan_indices=np.empty(0, np.int64),
                changes=InputChanges(num_added=count),
            )
        index_chunks, changed_chunks, extras_chunks = [], [], []
        changed_ids: list[str] = []
        for chunk in split_into_chunks(items, CHUNK):
            plan_indices = plan.find_by_id_hash(hash_ids(item.id for item in chunk))
            digests = [digest_content_and_extras(item) for item in chunk]
            content = _shorten_digests([content for content, _ in digests])
            clipped_indices = np.maximum(plan_indices, 0)
            is_changed = (
                (plan_indices >= 0)
                & (plan.block_indices[clipped_indices] >= 0)
                & (plan.content_hashes[clipped_indices] != content)
            )
            changed_ids += [
                chunk[i].id for i in np.flatnonzero(is_changed)[: MAX_NAMED - len(changed_ids)]
            ]
            index_chunks.append(plan_indices)
            changed_chunks.append(is_changed)
            extras_chunks.append(
                _shorten_digests([extras for _, extras in digests])
                != plan.extra_hashes[clipped_indices]
            )
        plan_indices, is_changed, has_other_extras = map(
            np.concatenate, (index_chunks, changed_chunks, extras_chunks)
        )
        is_new = (plan_indices < 0) | (plan.block_indices[np.maximum(plan_indices, 0)] < 0)
        is_missing = plan.block_indices >= 0
        is_missing[plan_indices[~is_new]] = False
        missing = np.flatnonzero(is_missing)
        return cls(
            plan_indices=plan_indices,
            is_new=is_new,
            is_changed=is_changed,
            missing_plan_indices=missing[np.argsort(plan.row_numbers[missing])],
            changes=InputChanges(
                num_added=int(is_new.sum()),
                num_changed=int(is_changed.sum()),
                num_gone=len(missing),
                num_other_meta=int((has_other_extras & ~is_new & ~is_changed).sum()),
                changed=tuple(changed_ids),
            ),
        )


def look_up_item_ids(store: Store, hashes: Hashes) -> list[str]:
    """Look up the ids of planned items by the hashes of the ids, and return them in that order."""
    names: dict[int, str] = {}
    for part in read_plan_parts(store):
        part_hashes = hash_ids(part.column("item_id").to_pylist())
        rows = np.flatnonzero(np.isin(part_hashes, hashes))
        ids = pc.take(part.column("item_id"), pa.array(rows)).to_pylist()
        names.update(zip(part_hashes[rows].tolist(), ids, strict=True))
    return [names[key] for key in hashes.tolist()]


def digest_content_and_extras(item: Item) -> tuple[bytes, bytes]:
    """Return the digest of an item's content and the digest of its extras."""
    return _digest_texts(item.content(), CONTENT_BYTES), _digest_texts(
        item.extra_texts(), META_BYTES
    )


def hash_ids(ids: Iterable[str]) -> Hashes:
    """Hash items' ids by Python's `hash`, which is salted randomly per process, so the hashes are
    valid only in this process.
    """
    return np.fromiter(map(hash, ids), np.int64).view(np.uint64)


def _digest_texts(texts: Iterable[str], size: int) -> bytes:
    whole = hashlib.blake2b(digest_size=size)
    for text in texts:
        content = text.encode()
        whole.update(len(content).to_bytes(8, "big"))
        whole.update(content)
    return whole.digest()


def _shorten_digests(digests: Sequence[bytes]) -> Hashes:
    """Return the first eight bytes of each digest."""
    return np.frombuffer(b"".join(digest[:8] for digest in digests), ">u8").astype(np.uint64)


def _read_first_bytes(column: pa.ChunkedArray, width: int) -> Hashes:
    whole = column.combine_chunks()
    raw = np.frombuffer(whole.buffers()[1], np.uint8)
    rows = raw.reshape(-1, width)[whole.offset : whole.offset + len(whole), :8]
    return np.ascontiguousarray(rows).view(">u8").ravel().astype(np.uint64)
