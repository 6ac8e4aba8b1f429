"""The plan of a run, `plan/NUMBER.parquet`: the assignment of items to blocks.

The plan consists of numbered parts. A driver creates each part exclusively, under the next free
number, before it leases a block of the part. So two drivers with different inputs cannot divide
their items into conflicting blocks. A part never changes, but a later part may supersede items of
earlier parts: their results no longer count. Ids of blocks are stored compactly in memory, because
runs can have a million blocks.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.core.seeds import ID_LENGTH, canonical_json
from mclabel.run.shards.digest import encode_parquet_with_digest
from mclabel.run.shards.shard import read_table_with_digest
from mclabel.run.shards.store import Store, make_damaged_file_error

T = TypeVar("T")

PACK_SIZE = 10_000
"""Number of names that `PackedNames` converts to bytes at a time."""


class PackedNames(Set[str]):
    """A set of names, stored compactly as one sorted array; iteration is in sorted order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        parts = [
            np.array([name.encode() for name in part], dtype=bytes)
            for part in split_into_chunks(names, PACK_SIZE)
        ]
        packed = np.concatenate(parts) if parts else np.array([], dtype="S1")
        parts.clear()
        packed.sort()
        if (is_repeated := packed[1:] == packed[:-1]).any():
            packed = packed[np.append(True, ~is_repeated)]
        self._names: NDArray[np.bytes_] = packed

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return (name.decode() for name in self._names)

    def __contains__(self, name: object) -> bool:
        if not isinstance(name, str):
            return False
        packed = name.encode()
        place = int(np.searchsorted(self._names, packed))
        return place < len(self._names) and self._names[place] == packed


def split_into_chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items as lists of `size` items; the last list can be shorter."""
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


FOLDER = "plan"
CONTENT_BYTES, META_BYTES = 16, 8
PLAN_SCHEMA = pa.schema(
    [
        pa.field("item_id", pa.string(), nullable=False),
        pa.field("content", pa.binary(CONTENT_BYTES), nullable=False),
        pa.field("meta", pa.binary(META_BYTES), nullable=False),
        pa.field("block", pa.string(), nullable=False),
        pa.field("superseded", pa.bool_(), nullable=False),
    ]
)
"""Columns of a part. `content` is a digest of everything on which an item's result depends (a
problem's text, gold answer and given solutions). `meta` is a digest of the item's other columns."""
_NUMBER_KEY = b"mclabel.part"
"""Metadata key of a part's number."""


@dataclass(frozen=True, kw_only=True)
class PlannedBlocks:
    """Blocks and superseded items of a plan, for readers of the run."""

    names: PackedNames
    """Ids of all blocks."""
    superseded_ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each block id, the ids of the block's items whose results no longer count."""


def read_plan_parts(store: Store) -> Iterator[pa.Table]:
    """Yield the parts of a run's plan in the order of their numbers.

    Raises:
        DamagedFile: a part is damaged or missing.
    """
    for number, name in enumerate(store.names(FOLDER), 1):
        if name != make_plan_part_name(number):
            raise make_damaged_file_error(
                store, make_plan_part_name(number), f"missing, though {name} is there"
            )
        own, table = read_table_with_digest(store, name, PLAN_SCHEMA, key=_NUMBER_KEY)
        if own != number:
            raise make_damaged_file_error(
                store, name, f"its content is that of {make_plan_part_name(own)}"
            )
        yield table


def commit_plan_part(store: Store, number: int, table: pa.Table) -> bool:
    """Create a part of the plan; return False if another driver has created this part already.

    Args:
        store: the run's store.
        number: number of the part, from 1.
        table: rows of the part, with the columns of `PLAN_SCHEMA`.
    """
    schema = PLAN_SCHEMA.with_metadata({_NUMBER_KEY: str(number)})
    content = encode_parquet_with_digest(table.cast(schema), compression="zstd")
    return store.create(make_plan_part_name(number), content)


def digest_identity(identity: Mapping[str, Any]) -> bytes:
    """Return a digest of a configuration's identity, the settings on which results depend. Every
    block id is computed from it.
    """
    return hashlib.sha256(canonical_json(["block", identity])).digest()


def make_block_id(
    identity_digest: bytes, contents: Sequence[Sequence[str]], generation: int
) -> str:
    """Return the id of a block: a hash of its items and of the configuration's identity.

    Args:
        identity_digest: digest of the identity, from `digest_identity`.
        contents: for each item its id, and the digest of its content in hexadecimal.
        generation: number of the plan's part, from 1, if an item was in an earlier block; else 0.
    """
    return hashlib.sha256(identity_digest + canonical_json([contents, generation])).hexdigest()[
        :ID_LENGTH
    ]


def is_plan_for_identity(store: Store, identity: Mapping[str, Any]) -> bool | None:
    """Return whether a run's plan was made for a configuration. The id of the first block shows
    this.

    Args:
        store: the run's store.
        identity: identity of the configuration.

    Returns:
        True or False; None for a run without a plan.

    Raises:
        DamagedFile: a part of the plan is damaged or missing.
    """
    part = next(read_plan_parts(store), None)
    if part is None or not part.num_rows:
        return None
    first = part.column("block")[0].as_py()
    rows = part.filter(pc.equal(part.column("block"), first)).to_pylist()
    contents = [[row["item_id"], row["content"].hex()] for row in rows]
    return bool(make_block_id(digest_identity(identity), contents, generation=0) == first)


def make_plan_part_name(number: int) -> str:
    """Return the name of the file of a part.

    Args:
        number: number of the part, from 1.
    """
    return f"{FOLDER}/{number:06d}.parquet"


def read_planned_blocks(store: Store) -> PlannedBlocks | None:
    """Return the blocks of a run's plan; None for runs without a plan (imports, regraded runs).

    Raises:
        DamagedFile: a part is damaged or missing.
    """
    names: list[pa.Array] = []
    superseded: dict[str, set[str]] = defaultdict(set)
    for table in read_plan_parts(store):
        names.append(pc.unique(table.column("block")))
        for row in table.filter(table.column("superseded")).to_pylist():
            superseded[row["block"]].add(row["item_id"])
    if not names:
        return None
    return PlannedBlocks(
        names=PackedNames(name for part in names for name in part.to_pylist()),
        superseded_ids={block: frozenset(ids) for block, ids in superseded.items()},
    )
