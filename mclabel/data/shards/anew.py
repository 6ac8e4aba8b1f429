"""All blocks of a run written anew and put in the place of the old ones in one commit.

Labels of a combined run rest on what was learned from the whole run (their *fit*, which is in each
shard's metadata), so blocks of two fits must never lie side by side. All blocks are written as
shards of a merge (`compact`), one each, and its catalog is their commit: readers have the labels of
the old fit before, and those of the new one after it. Killed before the commit, nothing has
happened; what was written is deleted by the next one.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from mclabel.data.shards.catalog import MERGED, Place, commit_merge, read_catalog
from mclabel.data.shards.compact import delete_unused
from mclabel.data.shards.labels import FIT, write_labels
from mclabel.data.shards.shard import read_shard
from mclabel.data.shards.store import Store
from mclabel.errors import ShardError
from mclabel.records import LabeledSolution, Rollout


def fit_of(store: Store) -> str | None:
    """The fit of a run's labels, which all of its blocks share; None if it has none."""
    for file in read_catalog(store).files:
        fit: str | None = read_shard(store, file, "labels")[0].get(FIT)
        return fit
    return None


class BlocksAnew:
    """Writes all blocks of a run, to replace those that are there."""

    def __init__(self, store: Store) -> None:
        """Begin; nothing is replaced before `commit`.

        Args:
            store: of the run.
        """
        self._store = store
        self._number = read_catalog(store).number + 1
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
            rollouts: of its problems; None keeps none.
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
            for place in self._places.values():
                self._store.delete(place.file)
                self._store.delete(place.file.replace("/labels/", "/rollouts/", 1))
            raise ShardError(
                f"{self._store.location}: another command has merged or rewritten its shards "
                "in the meantime, so nothing was changed. Run the command again"
            )
        delete_unused(self._store)
