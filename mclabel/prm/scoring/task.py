"""Scoring as a task: solutions are its items, and score shards what its blocks leave.

A block is minutes of work at most, and is scored as a whole, so it leaves no journal: a kill costs
the blocks that were running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from mclabel.data.readers.rows import RejectReason
from mclabel.data.shards.journal import JournalEntry, Line
from mclabel.data.shards.solution_rows import SCORES
from mclabel.data.shards.store import Store
from mclabel.errors import BadAnswer, DataError
from mclabel.prm.scoring.batched import BatchedScorer
from mclabel.prm.scoring.items import SolutionItem
from mclabel.work.row_outputs import RowOutputs
from mclabel.work.task import (
    Attempt,
    Commit,
    FinishedBlock,
    RunnerState,
    TaskWords,
)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What scoring one solution gives."""

    steps: tuple[float, ...] = ()
    """One number in [0, 1] a step."""
    num_tokens: int = 0
    set_aside: RejectReason | None = None
    """Why the solution cannot be scored."""


SCORE_WORDS = TaskWords(
    item="solution",
    items="solutions",
    content="any column of the row",
    done="scored",
    block_setting="block_solutions",
    counters={"num_steps": 0},
    shown_counters={"num_steps": "steps"},
)


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
    def outputs(self) -> RowOutputs:
        """The score shards of a run."""
        return RowOutputs(shards=SCORES, words=SCORE_WORDS, source=self.source)

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
        self._scorer = BatchedScorer(task.load, max_tokens=task.max_tokens)

    async def start(self) -> None:
        """Load the model."""
        await self._scorer.start()

    async def begin(self, attempt: Attempt) -> None:
        """Nothing: blocks have nothing to do with each other."""

    async def run(self, item: SolutionItem, attempt: Attempt) -> Scores:
        """Score one solution, together with others that wait."""
        from mclabel.prm.examples.encode import TooLongError
        from mclabel.prm.scoring.score import check_scores

        try:
            scores, num_tokens = await self._scorer.score(item)
        except (DataError, BadAnswer) as error:
            if self._task.strict:
                raise
            reason = "too_long" if isinstance(error, TooLongError) else "unreadable"
            reason = "bad_answer" if isinstance(error, BadAnswer) else reason
            detail = str(error).removeprefix(f"{item.place}: ")
            return Scores(set_aside=RejectReason(reason, detail))
        check_scores("the scorer", [scores], [item.place])
        return Scores(steps=tuple(scores), num_tokens=num_tokens)

    def commit(self, finished: FinishedBlock) -> Commit:
        """Write the block's shard."""
        from mclabel.prm.scoring.aggregate import AGGREGATIONS

        numbers = {item.id: item.number for item in finished.block.items}
        scored = [(item, scores) for item, scores in finished.results if scores.set_aside is None]
        won = SCORES.commit(
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
        )
        return Commit(won=won, counts={"num_scored": len(scored)})

    def state(self) -> RunnerState:
        """The solutions that are scored now, and tokens and steps scored."""
        return self._scorer.state()

    async def close(self) -> None:
        """Free the model."""
        self._scorer.close()
