"""Random sequences of changed inputs, labelling, merges and failures of the store.

After each, code that shares nothing with the package's readers counts every label's rollouts, with
pyarrow alone. It follows docs/formats.md: the plan says which block holds a problem, catalogs of
merges where merged blocks lie, and a labels shard names its rollouts.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from mclabel.core.errors import ShardError
from mclabel.run.shards.compact import compact
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import run_label_job

_OUTCOMES = ("right", "wrong", "truncated", "ungraded")
Row = dict[str, Any]


def audit(run: Path, answers: Mapping[str, str], *, per_problem: int, is_complete: bool) -> int:
    """Check that every problem's labels rest on exactly the rollouts that they count.

    Args:
        run: folder of a labelling run.
        answers: gold of each problem, by id, as the last labelling job was given them.
        per_problem: solutions of each.
        is_complete: whether every problem must have labels.

    Returns:
        The number of rollouts that labels which count rest on.
    """
    block_of = _planned(run)
    if is_complete:
        assert block_of.keys() == answers.keys()
    places = _merged(run)
    shard_of = cache(lambda block: _shard(run, block, places))  # holds several problems
    num_rollouts = 0
    for problem, block in block_of.items():
        shard = shard_of(block)
        if shard is None:
            assert not is_complete, f"{problem} of block {block} has no labels"
            continue
        labels, rollouts = shard
        rows = [row for row in labels if row["problem_id"] == problem]
        assert [row["sample_index"] for row in rows] == list(range(per_problem))
        assert {row["answer"] for row in rows} == {answers[problem]}
        own = [one for one in rollouts if one["problem_id"] == problem]
        _check_counts(rows, own)
        num_rollouts += len(own)
    return num_rollouts


def _check_counts(rows: list[Row], rollouts: list[Row]) -> None:
    """Compare the counts of all of a problem's prefixes with its rollouts."""
    assert len({(one["prefix_id"], one["index"]) for one in rollouts}) == len(rollouts)
    found: dict[str, Counter[str]] = {}
    for one in rollouts:
        found.setdefault(one["prefix_id"], Counter())[one["outcome"]] += 1
    stepwise = set()
    for row in rows:
        for step in row["steps"][:-1]:
            stepwise.add(step["prefix_id"])
            counts = found.get(step["prefix_id"], Counter())
            assert [step[f"num_{name}"] for name in _OUTCOMES] == [counts[n] for n in _OUTCOMES]
    bare = found.keys() - stepwise
    assert len(bare) <= 1, "rollouts of prefixes that no label has"
    counts = found[bare.pop()] if bare else Counter()
    for row in rows:
        assert [row["root"][f"num_{name}"] for name in _OUTCOMES] == [counts[n] for n in _OUTCOMES]


def _planned(run: Path) -> dict[str, str]:
    """The block that holds what counts of each problem."""
    block_of: dict[str, str] = {}
    for part in sorted((run / "plan").glob("*.parquet")):
        for row in _read(part).to_pylist():
            if not row["superseded"]:
                block_of[row["item_id"]] = row["block"]
            elif block_of.get(row["item_id"]) == row["block"]:
                del block_of[row["item_id"]]
    return block_of


def _merged(run: Path) -> dict[str, Row]:
    """The places of merged blocks, as the last merge of each has them."""
    rows = (
        row
        for catalog in sorted((run / "compacted").glob("*.parquet"))
        for row in _read(catalog).to_pylist()
    )
    return {row["block"]: row for row in rows}


def _shard(run: Path, block: str, places: Mapping[str, Row]) -> tuple[list[Row], list[Row]] | None:
    """Labels of a block, and all rollouts that its shard names; None without labels."""
    path = run / "labels" / f"{block}.parquet"
    place = places.get(block)
    if place is not None:
        path = run / place["file"]
    if not path.exists():
        return None
    table = _read(path)
    labels = table if place is None else table.slice(place["offset"], place["num_rows"])
    metadata = json.loads(table.schema.metadata[b"mclabel"])
    return labels.to_pylist(), _read(run / metadata["rollouts"]).to_pylist()


def _read(path: Path) -> pa.Table:
    """A small file, in one thread: `pq.read_table` would set up the scan of a data set for it."""
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)


PER_PROBLEM = 2
DEATHS = st.sampled_from([None, None, None, *range(1, 13)])
"""Writes after which the store fails for good; None never."""


@dataclass(frozen=True)
class Step:
    """A change of the input, a labelling job, and perhaps a merge."""

    edit: tuple[str, int, int]
    """What changes, at which place, to which answer."""
    num_blocks: int | None
    """Blocks that the job labels before it is stopped."""
    label_dies_after: int | None
    merged_rows: int | None
    """Rows of a merged shard; None merges nothing."""
    merge_dies_after: int | None


EDITS = ("change_gold", "change_text", "add", "remove", "reorder")
STEPS = st.builds(
    Step,
    st.tuples(st.sampled_from(EDITS), st.integers(0, 99), st.integers(0, 3)),
    st.sampled_from([None, None, None, 1, 2]),
    st.sampled_from([None, None]) | DEATHS,
    st.sampled_from([1000, 12, None]),
    st.sampled_from([None, None]) | DEATHS,
)


class Run:
    """A run of labels, and the input that it was last given."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "run"
        self.problems: dict[str, tuple[str, str]] = {}
        """Text and answer by id."""
        self.labelled: dict[str, str] = {}
        """Answers that the plan has taken up."""
        self.is_complete = False

    def label(self, *, num_blocks: int | None = None, dies_after: int | None = None) -> None:
        """Label the input as it is now: all of it, or some blocks, until the store dies."""
        source = self.folder / "problems.jsonl"
        rows = [{"id": i, "problem": p, "answer": a} for i, (p, a) in self.problems.items()]
        source.write_text("\n".join(map(json.dumps, rows)))

        def choose(blocks: Any) -> list[str]:
            self.labelled = {name: answer for name, (_, answer) in self.problems.items()}
            names = [name for name, _ in blocks.sizes()]
            return names if num_blocks is None else names[:num_blocks]

        with dying(dies_after) as is_dead:
            self.is_complete = False
            try:
                run_label_job(
                    [
                        *(
                            f"out={self.out}",
                            "policy.engine=scripted",
                            "ray.address=none",
                            "seed=3",
                        ),
                        *("block_problems=2", f"problems.source={source}", "estimator.rollouts=3"),
                        f"solutions.per_problem={PER_PROBLEM}",
                    ],
                    choose=choose,
                    accept_changes=True,
                )
            except ShardError:
                assert is_dead()
                return
        self.is_complete = num_blocks is None

    def merge(self, *, rows: int, dies_after: int | None = None) -> None:
        """Merge shards, until the store dies."""
        if not self.out.exists():
            return
        with dying(dies_after) as is_dead:
            try:
                compact(Store(str(self.out)), rows=rows)
            except ShardError:
                assert is_dead()

    def check(self) -> int:
        """Count every label's rollouts; their number."""
        if not self.labelled:
            return 0
        found = verify(Store(str(self.out)))
        assert found.is_sound, found.damage
        return audit(self.out, self.labelled, per_problem=PER_PROBLEM, is_complete=self.is_complete)


@contextmanager
def dying(after: int | None) -> Iterator[Callable[[], bool]]:
    """Let every store fail for good after some writes and deletions, as if its disk were gone.

    Gives whether it has failed.
    """
    left = after
    patch = pytest.MonkeyPatch()

    def step() -> None:
        nonlocal left
        if left is not None:
            if left <= 0:
                left = -1
                raise ShardError("the disk is gone")
            left -= 1

    def failing(name: str) -> None:
        method = getattr(Store, name)
        patch.setattr(Store, name, lambda store, *args: (step(), method(store, *args))[1])

    for name in ("create", "append", "replace", "delete"):
        failing(name)
    try:
        yield lambda: left == -1
    finally:
        patch.undo()


class RunMachine:
    """Takes steps: each changes the input, labels, and perhaps merges."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        self._count = 0
        self.add(3)

    def step(self, step: Step) -> None:
        """Take a step, and check the run after each of its parts."""
        edit, place, answer = step.edit
        getattr(self, edit)(*[place % 3 + 1] if edit == "add" else [place, answer])
        self.run.label(num_blocks=step.num_blocks, dies_after=step.label_dies_after)
        self.run.check()
        if step.merged_rows is not None:
            self.run.merge(rows=step.merged_rows, dies_after=step.merge_dies_after)
            self.run.check()

    def end(self) -> None:
        """In the end all is labelled and merged into one shard, and still whole."""
        self.run.label()
        num_rollouts = self.run.check()
        self.run.merge(rows=1000)
        assert self.run.check() == num_rollouts

    def add(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            self._set(f"p{self._count}", str(self._count))

    def change_gold(self, place: int, answer: int) -> None:
        """Another gold, which may be one of before."""
        name = self._name(place)
        self._set(name, str(answer), text=self.run.problems[name][0])

    def change_text(self, place: int, answer: int) -> None:
        self._set(self._name(place), str(answer))

    def remove(self, place: int, answer: int) -> None:
        if len(self.run.problems) > 1:
            del self.run.problems[self._name(place)]

    def reorder(self, place: int, answer: int) -> None:
        items = list(self.run.problems.items())
        random.Random(place).shuffle(items)
        self.run.problems = dict(items)

    def _name(self, place: int) -> str:
        return sorted(self.run.problems)[place % len(self.run.problems)]

    def _set(self, name: str, answer: str, text: str | None = None) -> None:
        text = f"{name} [answer {answer}]" if text is None else text
        self.run.problems[name] = (text, answer)


def check_sequences(count: int, *, number: int) -> None:
    """Check sequences that are always the same; others for another number."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(STEPS, min_size=3, max_size=6))
    def check(steps: list[Step]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            machine = RunMachine(Path(folder))
            for step in steps:
                machine.step(step)
            machine.end()

    check()


@pytest.mark.slow
def test_twenty_sequences() -> None:
    check_sequences(20, number=1)


def test_a_second_merge_keeps_the_rollouts_of_a_problem_that_was_labelled_anew(
    tmp_path: Path,
) -> None:
    run = Run(tmp_path)
    run.problems = {f"p{i}": (f"P{i} [answer {i}]", str(i)) for i in range(3)}
    run.label()
    run.problems["p0"] = (run.problems["p0"][0], "7")
    run.label()
    run.merge(rows=1000)
    run.check()
    run.problems["p3"] = ("P3 [answer 3]", "3")
    run.label()
    before = run.check()
    run.merge(rows=1000)
    assert run.check() == before
    run.label()
    assert run.check() == before
