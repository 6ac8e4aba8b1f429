"""What a judge's task leaves: an opinion on each solution, in shards."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from mclabel.data.shards.opinions import opinion_blocks, read_block, without_opinions
from mclabel.data.shards.rejects import Reject, noted_blocks
from mclabel.data.shards.store import Store
from mclabel.work.task import CommittedBlocks, TaskWords


@dataclass(frozen=True, kw_only=True)
class OpinionOutputs:
    """The shards of opinions of a run; an `Outputs` (`mclabel.work.task`)."""

    words: TaskWords
    source: str
    """Name of the input, for the solutions that have no row."""

    def committed(self, store: Store) -> CommittedBlocks:
        """The blocks whose shards are there."""
        done = opinion_blocks(store)
        return CommittedBlocks(blocks=done.blocks, foreign=done.foreign)

    def sweep(self, store: Store) -> None:
        """Remove what kills have left half-written: an attempt that lost leaves nothing else."""
        store.sweep()

    def set_aside(self, store: Store) -> Iterator[Reject]:
        """The solutions that committed blocks have no row for."""
        for why in without_opinions(store, noted_blocks(store)):
            yield Reject(
                row=why["row"], source=self.source, reason=why["reason"], detail=why["detail"]
            )

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """The problems of the solutions of some blocks."""
        done = opinion_blocks(store).blocks
        tables = (read_block(store, block)[1] for block in blocks if block in done)
        rows = (row for table in tables for row in table.to_pylist())
        return {row["id"]: json.loads(row["input"])["problem"] for row in rows}

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """There are no figures beside the counters."""
        return {}
