"""The plan of a run: which item belongs to which block, in `plan/NUMBER.parquet`.

A driver creates each part exclusively under the next free number before it leases anything, so two
drivers with different inputs cannot cut different blocks. A part never changes; a later one may
supersede items of an earlier one. Names of a million blocks take some twenty bytes each.
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
from mclabel.run.shards.digest import parquet_with_digest
from mclabel.run.shards.shard import read_stamped
from mclabel.run.shards.store import Store, damaged

T = TypeVar("T")

PART = 10_000
"""Names that are packed together."""


class PackedNames(Set[str]):
    """A set of names, kept as one sorted array of their bytes; iterates in order."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        parts = [
            np.array([name.encode() for name in part], dtype=bytes)
            for part in in_chunks(names, PART)
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


def in_chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the items as lists of `size`, the last one shorter."""
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
"""`content` is a digest of what an item's result depends on (a problem's text, gold and given
solutions), `meta` one of its other columns."""
_NUMBER_KEY = b"mclabel.part"
"""Key of a part's metadata that says which part it is: a later one supersedes earlier ones."""


@dataclass(frozen=True, kw_only=True)
class PlannedBlocks:
    """Summary of a plan for readers."""

    names: PackedNames
    """Ids of all blocks."""
    superseded: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Maps each block to the ids of its items whose results no longer count."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Maps each superseded item to the block whose result replaces the superseded one, if any."""


def read_parts(store: Store) -> Iterator[pa.Table]:
    """Yield the parts of a run's plan, from the first.

    Raises:
        DamagedFile: a part is damaged, or missing.
    """
    for number, name in enumerate(store.names(FOLDER), 1):
        if name != part_name(number):
            raise damaged(store, part_name(number), f"missing, though {name} is there")
        own, table = read_stamped(store, name, PLAN_SCHEMA, key=_NUMBER_KEY)
        if own != number:
            raise damaged(store, name, f"it is {part_name(own)}, put in the place of this file")
        yield table


def commit_part(store: Store, number: int, table: pa.Table) -> bool:
    """Create a part; False if another driver has taken the number."""
    schema = PLAN_SCHEMA.with_metadata({_NUMBER_KEY: str(number)})
    content = parquet_with_digest(table.cast(schema), compression="zstd")
    return store.create(part_name(number), content)


def blocks_of(identity: Mapping[str, Any]) -> bytes:
    """Return the digest that goes into the id of every block of a configuration."""
    return hashlib.sha256(canonical_json(["block", identity])).digest()


def block_id(how: bytes, contents: Sequence[Sequence[str]], generation: int) -> str:
    """Return the id of a block: a hash of its items and of how they are run.

    Args:
        how: the digest that `blocks_of` returns.
        contents: id of each item, and the digest of its content in hexadecimal.
        generation: 0, or the number of the plan's part where an item had a block before.
    """
    return hashlib.sha256(how + canonical_json([contents, generation])).hexdigest()[:ID_LENGTH]


def is_plan_of(store: Store, identity: Mapping[str, Any]) -> bool | None:
    """Return whether a run's plan was made for a configuration, by the ids of its blocks.

    Args:
        store: the run's store.
        identity: identity of the configuration.

    Returns:
        None for a run without a plan.

    Raises:
        DamagedFile: a part of the plan is damaged, or missing.
    """
    part = next(read_parts(store), None)
    if part is None or not part.num_rows:
        return None
    first = part.column("block")[0].as_py()
    rows = part.filter(pc.equal(part.column("block"), first)).to_pylist()
    contents = [[row["item_id"], row["content"].hex()] for row in rows]
    return bool(block_id(blocks_of(identity), contents, generation=0) == first)


def part_name(number: int) -> str:
    """Return the file of a part.

    Args:
        number: from 1.
    """
    return f"{FOLDER}/{number:06d}.parquet"


def planned_blocks(store: Store) -> PlannedBlocks | None:
    """Return the blocks of a run's plan; None without one, as for imports and regraded runs.

    Raises:
        DamagedFile: a part is damaged, or missing.
    """
    names: list[pa.Array] = []
    superseded: dict[str, set[str]] = defaultdict(set)
    replaced: dict[str, str | None] = {}
    for table in read_parts(store):
        names.append(pc.unique(table.column("block")))
        for row in table.filter(table.column("superseded")).to_pylist():
            superseded[row["block"]].add(row["item_id"])
            replaced[row["item_id"]] = None
        if replaced:  # a part supersedes before it plans anew
            again = pc.is_in(
                table.column("item_id"), value_set=pa.array(list(replaced), pa.string())
            )
            for row in table.filter(pc.and_not(again, table.column("superseded"))).to_pylist():
                replaced[row["item_id"]] = row["block"]
    if not names:
        return None
    return PlannedBlocks(
        names=PackedNames(name for part in names for name in part.to_pylist()),
        superseded={block: frozenset(ids) for block, ids in superseded.items()},
        replaced={item: block for item, block in replaced.items() if block is not None},
    )
