"""Checks that the trees of a search are there, whole, and those of the attempts that won."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from mclabel.data.shards.store import Store
from mclabel.data.shards.trees import FOLDER, is_search, read_block, tree_file
from mclabel.data.verify.findings import Verification
from mclabel.errors import DamagedFile


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
