"""Scoring as a task: solutions are its items, and score shards what its blocks leave.

A block is minutes of work at most, and is scored as a whole, so it leaves no journal: a kill costs
the blocks that were running.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from mclabel.data.readers.rows import Fault
from mclabel.data.shards.journal import JournalEntry, Line
from mclabel.data.shards.rejects import Reject, noted_blocks
from mclabel.data.shards.scores import commit_scores, read_scores, scored_blocks, unscored
from mclabel.data.shards.store import Store
from mclabel.errors import DataError, EngineDied
from mclabel.prm.scoring.batches import MAX_SOLUTIONS, ScoreBatches
from mclabel.prm.scoring.items import SolutionItem
from mclabel.work.desk import Desk
from mclabel.work.task import (
    Attempt,
    Commit,
    CommittedBlocks,
    FinishedBlock,
    RunnerState,
    TaskWords,
)

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What scoring one solution gives."""

    steps: tuple[float, ...] = ()
    """One number in [0, 1] a step."""
    num_tokens: int = 0
    set_aside: Fault | None = None
    """Why the solution cannot be scored."""


class ScoreOutputs:
    """The score shards of a run."""

    words = TaskWords(
        item="solution",
        items="solutions",
        content="any column of the row",
        done="scored",
        block_setting="block_solutions",
        counters={"num_steps": 0},
        shown_counters={"num_steps": "steps"},
    )

    def __init__(self, source: str) -> None:
        """Outputs of a job.

        Args:
            source: name of the input, for the rows without scores.
        """
        self._source = source

    def committed(self, store: Store) -> CommittedBlocks:
        """The blocks whose shards are there."""
        done = scored_blocks(store)
        return CommittedBlocks(blocks=done.blocks, foreign=done.foreign)

    def sweep(self, store: Store) -> None:
        """Remove what kills have left half-written: an attempt that lost leaves nothing else."""
        store.sweep()

    def set_aside(self, store: Store) -> Iterator[Reject]:
        """The solutions that committed blocks have no scores for."""
        for why in unscored(store, noted_blocks(store)):
            yield Reject(
                row=why["row"], source=self._source, reason=why["reason"], detail=why["detail"]
            )

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """The problems of the solutions of some blocks."""
        done = scored_blocks(store).blocks
        tables = (read_scores(store, block)[1] for block in blocks if block in done)
        rows = (row for table in tables for row in table.to_pylist())
        return {row["id"]: json.loads(row["input"])["problem"] for row in rows}

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """Nothing."""
        return {}


@dataclass(frozen=True, kw_only=True)
class ScoreTask:
    """Scores the steps of solutions with a PRM."""

    load: Callable[[], Any]
    """Loads the scorer; called on each worker."""
    source: str
    """Name of the input."""
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    max_tokens: int
    """Tokens that are scored at a time."""
    strict: bool = False
    """Whether a solution that cannot be scored is an error."""

    @property
    def outputs(self) -> ScoreOutputs:
        """The score shards of a run."""
        return ScoreOutputs(self.source)

    def runner(self, store: Store) -> ScoreRunner:
        """The task on one model."""
        return ScoreRunner(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        """Refuse any line: scoring writes no journals."""
        raise ValueError("scoring writes no journals")


class ScoreRunner:
    """Scores solutions with one model. A `Runner` (`mclabel.work.task`)."""

    def __init__(self, task: ScoreTask, store: Store) -> None:
        """Prepare to score; `start` loads the model.

        Args:
            task: what is to be done.
            store: of the run.
        """
        self._task, self._store = task, store
        self._desk = Desk()
        self._scorer: Any = None
        self._batches: ScoreBatches | None = None
        self._num_steps = 0

    async def start(self) -> None:
        """Load the model, in the thread that prepares its input."""
        self._scorer = await self._desk.run(self._task.load)
        self._batches = ScoreBatches(self._score, max_tokens=self._task.max_tokens)

    async def begin(self, attempt: Attempt) -> None:
        """Nothing: blocks have nothing to do with each other."""

    async def run(self, item: SolutionItem, attempt: Attempt) -> Scores:
        """Score one solution, together with others that wait."""
        from mclabel.prm.examples.encode import TooLongError

        assert self._batches is not None, "start() first"
        self._batches.num_coming += 1
        try:
            encoded: EncodedSolution = await self._desk.run(
                self._scorer.encode, item.problem, item.steps, item.place
            )
        except DataError as error:
            if self._task.strict:
                raise
            reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
            detail = str(error).removeprefix(f"{item.place}: ")
            return Scores(set_aside=Fault(reason, detail))
        finally:
            self._batches.num_coming -= 1
        scores = await self._batches.score(encoded)
        self._check(scores, item)
        self._num_steps += len(scores)
        return Scores(steps=tuple(scores), num_tokens=len(encoded.ids))

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the block's shard."""
        from mclabel.prm.scoring.aggregate import AGGREGATIONS

        numbers = {item.id: item.number for item in finished.block.items}
        scored = [(item, scores) for item, scores in finished.results if scores.set_aside is None]
        won = commit_scores(
            self._store,
            finished.block.id,
            finished.attempt,
            [
                {
                    "id": item.id,
                    "row": item.number,
                    "input": item.row,
                    "scores": scores.steps,
                    **{name: how(scores.steps) for name, how in AGGREGATIONS.items()},
                }
                for item, scores in scored
            ],
            {
                **self._task.provenance,
                "set_aside": {
                    name: {**asdict(why), "row": numbers[name]}
                    for name, why in finished.set_aside.items()
                },
                "cost": {"num_tokens": finished.num_tokens},
            },
            aggregations=tuple(AGGREGATIONS),
        )
        return Commit(won=won, counts={"num_scored": len(scored)})

    def state(self) -> RunnerState:
        """The solutions that are scored now, and tokens and steps scored."""
        batches = self._batches
        if batches is None:
            return RunnerState(counters={"num_steps": 0})
        return RunnerState(
            num_live=batches.num_live,
            max_live=MAX_SOLUTIONS,
            num_waiting=batches.num_waiting,
            num_tokens=batches.num_tokens,
            counters={"num_steps": self._num_steps},
        )

    async def close(self) -> None:
        """Free the model."""
        self._desk.close()
        if self._batches is not None:
            self._batches.close()
        self._scorer = None

    def _score(self, encoded: Any) -> list[list[float]]:
        """Score a batch, in a thread of its own."""
        import torch

        try:
            found: list[list[float]] = self._scorer.score_encoded(encoded)
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device has no memory left ({error})") from error
        return found

    def _check(self, scores: list[float], item: SolutionItem) -> None:
        from mclabel.prm.scoring.score import check_scores

        check_scores("the scorer", [scores], [item.place])
