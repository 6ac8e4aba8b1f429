"""Runs a judge as a task, the interface by which workers process blocks (`mclabel.run.task`). The
items of this task are solutions, and its results are opinions.

Answers of a language model are written to the block's journal, so that no answer is sampled again
after a kill. A new run can also reuse the answers of an earlier run of the same judge. It then
parses these answers with its own parser.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.settings import read_record
from mclabel.judge.base import Answer, Judge, JudgedItem, Opinion, hash_prompt
from mclabel.judge.opinions import read_opinion
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.opinions import (
    commit_opinions,
    iter_opinion_rows,
    read_items_without_opinions,
    read_opinion_blocks,
    read_opinions_block,
)
from mclabel.run.shards.rejects import Reject, list_blocks_with_set_aside_items
from mclabel.run.shards.store import Store
from mclabel.run.task import (
    Attempt,
    CommittedBlocks,
    FinishedBlock,
    RunnerState,
    TaskWords,
)

AnswerKey = tuple[str, str, int, int]
"""Id of a solution, hash of the prompt, number of the answer, and its maximum number of tokens."""


@dataclass(frozen=True, kw_only=True)
class JudgedOutcome:
    """Result of judging one solution."""

    opinion: Opinion | None = None
    num_tokens: int = 0
    set_aside: RejectReason | None = None
    """Reason why the solution is set aside without an opinion; None if it was judged."""


JUDGE_WORDS = TaskWords(
    item="solution",
    items="solutions",
    content="any column of the row, or the reference",
    done="judged",
    block_setting="block_solutions",
    counters={"num_opinions": 0, "num_unknown": 0, "num_answers": 0, "num_steps": 0},
    shown_counters={"num_opinions": "opinions", "num_unknown": "unknown", "num_steps": "steps"},
)


@dataclass(frozen=True, kw_only=True)
class JudgeTask:
    """Task of asking a judge for opinions on solutions."""

    make_judge: Callable[[], Judge]
    """Function that makes the judge; each worker calls it."""
    source: str
    """File, folder or URL of the input."""
    provenance: Mapping[str, Any]
    """Metadata of every shard."""
    strict: bool = False
    """True if a solution that cannot be judged is an error."""
    answers: Mapping[AnswerKey, Answer] = field(default_factory=dict)
    """Answers of an earlier run, which are reused for the same prompts."""

    @property
    def outputs(self) -> OpinionOutputReader:
        """Reader of the opinion shards of a run."""
        return OpinionOutputReader(words=JUDGE_WORDS, source=self.source)

    def runner(self, store: Store) -> JudgeRunner:
        """Return a runner of this task, which has its own judge."""
        return JudgeRunner(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        """Parse a line of a journal, which holds one answer of the judge's language model."""
        answer = read_record(Answer, line["answer"])
        return JournalEntry(
            key=(line["solution"], *answer.key), content=answer, num_tokens=answer.num_tokens or 0
        )


class JudgeRunner:
    """Judges solutions with one judge, on a worker. It implements `Runner` (`mclabel.run.task`)."""

    def __init__(self, task: JudgeTask, store: Store) -> None:
        """Make the judge without loading anything.

        Args:
            task: task that makes the judge and has the settings of the run.
            store: store of the run.
        """
        self._task, self._store = task, store
        self._judge = task.make_judge()
        self._counts: Counter[str] = Counter()

    async def start(self) -> None:
        """Load the judge's models."""
        await self._judge.start()

    async def begin(self, attempt: Attempt) -> None:
        """Do nothing, since blocks need no preparation."""

    async def run(self, item: JudgedItem, attempt: Attempt) -> JudgedOutcome:
        """Judge one solution; its answers are recorded in the journal of the attempt."""

        async def ask(prompt: str, *, number: int, max_tokens: int) -> Answer:
            """Return the recorded answer, or sample and record one (`AnswerSampler`)."""
            key = (item.id, hash_prompt(prompt), number, max_tokens)
            answer = self._task.answers.get(key) or attempt.journal.take(key)
            if answer is None:
                answer = await self._judge.sample(prompt, number=number, max_tokens=max_tokens)
                self._counts["answers"] += 1
                if answer.finish_reason != "failed":
                    attempt.journal.add(partial(make_answer_line, item.id, answer))
            return answer

        try:
            opinion = await self._judge.judge(item, ask)
        except DataError as error:
            opinion = RejectReason("not_judged", str(error).removeprefix(f"{item.place}: "))
        if isinstance(opinion, RejectReason):
            if self._task.strict:
                raise DataError(f"{item.place}: {opinion.detail}")
            return JudgedOutcome(set_aside=opinion)
        if not attempt.is_trial:
            self._counts["opinions" if opinion.is_known else "unknown"] += 1
            self._counts["steps"] += len(item.steps)
        return JudgedOutcome(opinion=opinion, num_tokens=opinion.num_tokens or 0)

    def commit(self, finished: FinishedBlock) -> dict[str, int]:
        """Write the shard of a finished block, unless another worker has written it."""
        numbers = {item.id: item.number for item in finished.block.items}
        rows = [
            {
                "id": item.id,
                "row": item.number,
                "input": item.row,
                "num_steps": len(item.steps),
                **asdict(judged.opinion),
            }
            for item, judged in finished.results
            if judged.opinion is not None
        ]
        commit_opinions(
            self._store,
            finished.block.id,
            finished.attempt,
            rows,
            {
                **self._task.provenance,
                "set_aside": {
                    name: {**asdict(why), "row": numbers[name]}
                    for name, why in finished.set_aside.items()
                },
                "cost": {"num_tokens": finished.num_tokens},
            },
        )
        return {"num_judged": len(rows)}

    def state(self) -> RunnerState:
        """Return the judge's progress, and counts of opinions, answers and steps."""
        state = self._judge.state()
        return RunnerState(
            num_live=state.num_live,
            max_live=state.max_live,
            num_waiting=state.num_waiting,
            num_tokens=state.num_tokens,
            counters={
                name: self._counts[name.removeprefix("num_")] for name in JUDGE_WORDS.counters
            },
            is_steady=state.is_steady,
        )

    async def close(self) -> None:
        """Free the resources of the judge."""
        await self._judge.close()


def make_answer_line(solution: str, answer: Answer) -> Line:
    """Return the journal line that holds an answer."""
    return {"solution": solution, "answer": asdict(answer)}


def read_recorded_answers(store: Store) -> dict[AnswerKey, Answer]:
    """Return all recorded answers of a judge's run, except failed ones.

    Raises:
        DamagedFile: a shard is damaged.
    """
    return {
        (row["id"], *answer.key): answer
        for row in iter_opinion_rows(store)
        for answer in read_opinion(store.location, row).answers
        if answer.finish_reason != "failed"
    }


@dataclass(frozen=True, kw_only=True)
class OpinionOutputReader:
    """Reader of the opinion shards of a run; implements `OutputReader` (`mclabel.run.task`)."""

    words: TaskWords
    source: str
    """File, folder or URL of the input, which is reported with solutions that are set aside."""

    def read_committed_blocks(self, store: Store) -> CommittedBlocks:
        """Return the blocks whose shards have been committed."""
        done = read_opinion_blocks(store, require_complete=False)
        return CommittedBlocks(blocks=done.blocks, foreign_files=done.foreign_files)

    def delete_uncommitted_files(self, store: Store) -> None:
        """Remove half-written files of killed attempts; attempts leave no other files."""
        store.delete_partial_files()

    def iter_set_aside_items(self, store: Store) -> Iterator[Reject]:
        """Yield the solutions that were set aside in committed blocks, so that no row has them."""
        for why in read_items_without_opinions(store, list_blocks_with_set_aside_items(store)):
            yield Reject(
                row=why["row"], source=self.source, reason=why["reason"], detail=why["detail"]
            )

    def read_item_texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        """Return the problem texts of the solutions of some blocks, by solution id."""
        done = read_opinion_blocks(store, require_complete=False).blocks
        tables = (read_opinions_block(store, block)[1] for block in blocks if block in done)
        rows = (row for table in tables for row in table.to_pylist())
        return {row["id"]: json.loads(row["input"])["problem"] for row in rows}

    def derived_figures(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        """Return no figures: a judge has only counters."""
        return {}
