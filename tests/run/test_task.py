"""The protocol of a task, by a small one: what a job calls, in which order, and what it adds up."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import EngineDied, RejectReason
from mclabel.run.blocks import JobBlocks, plan_blocks
from mclabel.run.fleets import LocalFleet
from mclabel.run.job import run_job
from mclabel.run.shards.journal import JournalEntry, Line
from mclabel.run.shards.rejects import Reject
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport, JobState
from mclabel.run.task import Attempt, Commit, CommittedBlocks, FinishedBlock, RunnerState, TaskWords
from mclabel.run.worker import Worker


@dataclass(frozen=True)
class Word:
    """An item: a word whose letters are counted."""

    id: str
    text: str

    @property
    def num_chars(self) -> int:
        return len(self.text)

    def content(self) -> tuple[str]:
        return (self.text,)

    def extras(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True, kw_only=True)
class Count:
    letters: int
    num_tokens: int
    set_aside: RejectReason | None = None


class WordOutputs:
    words = TaskWords(
        item="word",
        items="words",
        content="letters",
        done="counted",
        block_setting="block_words",
        counters={"num_letters": 0},
        gauges=("length",),
    )

    def committed(self, store: Store) -> CommittedBlocks:
        names = [name.removeprefix("counts/") for name in store.names("counts")]
        return CommittedBlocks(blocks=set(names))

    def sweep(self, store: Store) -> None:
        store.create("swept", b"")

    def set_aside(self, store: Store) -> Iterator[Reject]:
        for name in store.names("counts"):
            for item, detail in json.loads(store.read(name) or b"")["set_aside"].items():
                yield Reject(problem_id=item, reason="empty", detail=detail)

    def texts(self, store: Store, blocks: Collection[str]) -> Mapping[str, str]:
        return {}

    def derived(self, counters: Mapping[str, int | None]) -> Mapping[str, float | None]:
        return {"half": (counters["num_letters"] or 0) / 2}


@dataclass(frozen=True)
class CountLetters:
    """The task. Letters go to the journal one by one; `die_after` so many the engine dies, once."""

    die_after: int | None = None
    log: list[str] = field(default_factory=list)

    @property
    def outputs(self) -> WordOutputs:
        return WordOutputs()

    def runner(self, store: Store) -> Counter:
        self.log.append("runner")
        return Counter(self, store)

    def read_entry(self, line: Line) -> JournalEntry:
        return JournalEntry(key=(line["word"], line["place"]), content=line["letter"], num_tokens=1)


class Counter:
    def __init__(self, task: CountLetters, store: Store) -> None:
        self._task, self._store = task, store
        self._num_letters = 0

    async def start(self) -> None:
        self._task.log.append("start")

    async def begin(self, attempt: Attempt) -> None:
        self._task.log.append(f"begin {len(attempt.block.items)}")

    async def run(self, item: Word, attempt: Attempt) -> Count:
        if not item.text:
            return Count(letters=0, num_tokens=0, set_aside=RejectReason("empty", "has no letters"))
        for place, letter in enumerate(item.text):
            if attempt.journal.take((item.id, place)) is None:
                await asyncio.sleep(0)
                if self._num_letters == self._task.die_after and "died" not in self._task.log:
                    self._task.log.append("died")
                    raise EngineDied("as it was told to")
                self._num_letters += 1
                line = {"word": item.id, "place": place, "letter": letter}
                attempt.journal.add(lambda line=line: line)  # type: ignore[misc]
        return Count(letters=len(item.text), num_tokens=len(item.text))

    def commit(self, finished: FinishedBlock) -> Commit:
        content: dict[str, Any] = {
            "counts": {item.id: count.letters for item, count in finished.results},
            "set_aside": {name: why.detail for name, why in finished.set_aside.items()},
        }
        won = self._store.create(f"counts/{finished.block.id}", json.dumps(content).encode())
        return Commit(won=won, counts={"num_words": len(finished.results)})

    def state(self) -> RunnerState:
        return RunnerState(
            num_tokens=self._num_letters,
            counters={"num_letters": self._num_letters},
            gauges={"length": 3.0},
        )

    async def close(self) -> None:
        self._task.log.append("close")


WORDS = [Word(f"w{i}", "abc"[: i % 4] * (1 + i % 3)) for i in range(10)]
NUM_LETTERS = sum(len(word.text) for word in WORDS)


def blocks_of(store: Store) -> JobBlocks:
    return plan_blocks(store, WORDS, WordOutputs(), identity={}, block_items=4)


def run(folder: Path, task: CountLetters, states: list[JobState]) -> JobReport:
    store = Store(str(folder), create=True)
    fleet = LocalFleet(lambda: Worker(task, out=str(folder)))
    return run_job(blocks_of(store), task.outputs, fleet, store, on_state=states.append)


@pytest.mark.parametrize("die_after", [None, 5])
def test_any_task_is_run_over_its_items_once(tmp_path: Path, die_after: int | None) -> None:
    task, states = CountLetters(die_after), list[JobState]()
    report = run(tmp_path, task, states)
    assert (report.num_blocks, report.num_items, report.num_tokens) == (3, 10, NUM_LETTERS)
    assert report.counts == {"num_words": 10}
    store = Store(str(tmp_path))
    counts: dict[str, int] = {}
    for name in store.names("counts"):
        counts |= json.loads(store.read(name) or b"")["counts"]
    assert counts == {word.id: len(word.text) for word in WORDS}
    assert store.names("journals") == [] and store.read("swept") is not None
    empty = [word.id for word in WORDS if not word.text]
    lines = [json.loads(line) for line in (store.read("rejects.jsonl") or b"").splitlines()]
    assert sorted(line["problem_id"] for line in lines) == empty
    assert report.num_rejected == len(empty)
    died = die_after is not None
    assert task.log[:2] == ["runner", "start"] and task.log[-1] == "close"
    assert task.log.count("runner") == 1 + died
    last = states[-1]
    # What the journals held was not counted again by the engine that came next.
    assert last.counters == {"num_letters": NUM_LETTERS} and last.num_tokens == NUM_LETTERS
    assert last.num_replayed >= 5 if died else last.num_replayed == 0
    assert last.num_failures == died
    assert last.gauges == {"length": 3.0, "half": NUM_LETTERS / 2}
    progress = json.loads((store.read("progress.jsonl") or b"").splitlines()[-1])
    assert (progress["num_words"], progress["num_words_done"]) == (10, 10)
    assert progress["num_letters"] == NUM_LETTERS and progress["half"] == NUM_LETTERS / 2
    again = run(tmp_path, CountLetters(), [])
    assert (again.num_blocks_resumed, again.num_items) == (3, 0)
