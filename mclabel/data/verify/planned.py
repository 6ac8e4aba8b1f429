"""Checks that blocks hold the problems that the plan assigns to them, in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Set

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from mclabel.data.shards.plan import read_parts
from mclabel.data.shards.store import Store
from mclabel.data.verify.doubles import name_hashes

_ENTRY = np.dtype([("block", np.uint64), ("problem", np.uint64)])


class PlannedProblems:
    """The problems whose labels count, of each block, as 64-bit hashes: 16 bytes each."""

    def __init__(self, store: Store) -> None:
        """Read the plan of a run.

        Args:
            store: of a run.

        Raises:
            DamagedFile: a part of the plan is damaged.
        """
        planned, superseded = [np.zeros(0, _ENTRY)], [np.zeros(0, _ENTRY)]
        for part in read_parts(store):
            planned.append(_entries(part.filter(pc.invert(part["superseded"]))))
            superseded.append(_entries(part.filter(part["superseded"])))
        self.is_there = len(planned) > 1
        """Imports and runs that were graded again have no plan."""
        self._entries = np.setdiff1d(np.concatenate(planned), np.concatenate(superseded))

    def of(self, blocks: Iterable[str]) -> Set[int]:
        """Hashes of the problems of some blocks."""
        found: set[int] = set()
        for block in name_hashes(blocks):
            low = np.searchsorted(self._entries["block"], block, side="left")
            high = np.searchsorted(self._entries["block"], block, side="right")
            found.update(self._entries["problem"][low:high].tolist())
        return found


def _entries(part: pa.Table) -> NDArray[np.void]:
    entries = np.zeros(part.num_rows, _ENTRY)
    entries["block"] = name_hashes(part["block"].to_pylist())
    entries["problem"] = name_hashes(part["item_id"].to_pylist())
    return entries
