"""Random sequences of changed inputs, labelling jobs and store failures.

After each step, an audit counts the rollouts of every label with pyarrow alone. It shares no code
with the package's readers and follows docs/formats.md: the plan names a problem's block, and a
labels shard names its rollouts.
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
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import run_label_job

_OUTCOMES = ("right", "wrong", "truncated", "ungraded")
Row = dict[str, Any]


def audit(run: Path, answers: Mapping[str, str], *, per_problem: int, is_complete: bool) -> None:
    """Check that every problem's labels rest on exactly the rollouts that they count.

    Args:
        run: folder of a labelling run.
        answers: gold of each problem in the input of the last labelling job, by id.
        per_problem: number of solutions of each problem.
        is_complete: whether every problem must have labels.
    """
    block_of = _planned(run)
    if is_complete:
        assert block_of.keys() == answers.keys()
    shard_of = cache(lambda block: _shard(run, block))  # holds several problems
    for problem, block in block_of.items():
        shard = shard_of(block)
        if shard is None:
            assert not is_complete, f"{problem} of block {block} has no labels"
            continue
        labels, rollouts = shard
        rows = [row for row in labels if row["problem_id"] == problem]
        assert [row["sample_index"] for row in rows] == list(range(per_problem))
        assert {row["answer"] for row in rows} == {answers[problem]}
        _check_counts(rows, [one for one in rollouts if one["problem_id"] == problem])


def _check_counts(rows: list[Row], rollouts: list[Row]) -> None:
    """Compare the counts of all prefixes of a problem with its rollouts."""
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
    """Return the block that holds the current version of each problem."""
    block_of: dict[str, str] = {}
    for part in sorted((run / "plan").glob("*.parquet")):
        for row in _read(part).to_pylist():
            if not row["superseded"]:
                block_of[row["item_id"]] = row["block"]
            elif block_of.get(row["item_id"]) == row["block"]:
                del block_of[row["item_id"]]
    return block_of


def _shard(run: Path, block: str) -> tuple[list[Row], list[Row]] | None:
    """Return a block's labels and all rollouts that its shard names, or None without labels."""
    path = run / "labels" / f"{block}.parquet"
    if not path.exists():
        return None
    table = _read(path)
    metadata = json.loads(table.schema.metadata[b"mclabel"])
    return table.to_pylist(), _read(run / metadata["rollouts"]).to_pylist()


def _read(path: Path) -> pa.Table:
    """Read a small file in one thread. `pq.read_table` would set up a data set scan for it."""
    with pq.ParquetFile(path) as file:
        return file.read(use_threads=False)


PER_PROBLEM = 2
DEATHS = st.sampled_from([None, None, None, *range(1, 13)])
"""Number of writes after which the store fails permanently; None means never."""


@dataclass(frozen=True)
class Step:
    """A change of the input, and a labelling job."""

    edit: tuple[str, int, int]
    """Name of the change, its place, and the new answer."""
    num_blocks: int | None
    """Number of blocks that the job labels before it is stopped; None means all."""
    label_dies_after: int | None
    """Number of writes after which the store fails permanently; None means never."""


EDITS = ("change_gold", "change_text", "add", "remove", "reorder")
STEPS = st.builds(
    Step,
    st.tuples(st.sampled_from(EDITS), st.integers(0, 99), st.integers(0, 3)),
    st.sampled_from([None, None, None, 1, 2]),
    st.sampled_from([None, None]) | DEATHS,
)


class Run:
    """A labelling run and its latest input."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "run"
        self.problems: dict[str, tuple[str, str]] = {}
        """Text and answer of each problem, by id."""
        self.labelled: dict[str, str] = {}
        """Answers that the plan already contains, by problem id."""
        self.is_complete = False

    def label(self, *, num_blocks: int | None = None, dies_after: int | None = None) -> None:
        """Label all blocks of the current input, or some of them, until the store fails."""
        source = self.folder / "problems.jsonl"
        rows = [{"id": i, "problem": p, "answer": a} for i, (p, a) in self.problems.items()]
        source.write_text("\n".join(map(json.dumps, rows)))

        def choose(blocks: Any) -> list[str]:
            self.labelled = {name: answer for name, (_, answer) in self.problems.items()}
            names = [name for name, _ in blocks.iter_item_counts()]
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
                    choose_blocks=choose,
                    accept_changes=True,
                )
            except ShardError:
                assert is_dead()
                return
        self.is_complete = num_blocks is None

    def check(self) -> None:
        """Audit the rollouts of every label."""
        if not self.labelled:
            return
        found = verify(Store(str(self.out)))
        assert found.is_sound, found.damage
        audit(self.out, self.labelled, per_problem=PER_PROBLEM, is_complete=self.is_complete)


@contextmanager
def dying(after: int | None) -> Iterator[Callable[[], bool]]:
    """Let every store fail permanently after some writes and deletions, as if its disk were lost.

    Yields a function that says whether the store has failed.
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

    for name in ("create", "append", "replace", "delete"):
        method = getattr(Store, name)
        patch.setattr(
            Store, name, lambda store, *args, method=method: (step(), method(store, *args))[1]
        )
    try:
        yield lambda: left == -1
    finally:
        patch.undo()


class RunMachine:
    """A test machine whose steps change the input and label."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        self._count = 0
        self.add(3)

    def step(self, step: Step) -> None:
        """Take a step, and check the run."""
        edit, place, answer = step.edit
        getattr(self, edit)(*[place % 3 + 1] if edit == "add" else [place, answer])
        self.run.label(num_blocks=step.num_blocks, dies_after=step.label_dies_after)
        self.run.check()

    def add(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            self._set(f"p{self._count}", str(self._count))

    def change_gold(self, place: int, answer: int) -> None:
        """Set another gold, which may equal an earlier gold."""
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
    """Check a fixed set of random sequences; each number gives another set."""

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
            machine.run.label()
            machine.run.check()

    check()


@pytest.mark.slow
def test_twenty_sequences() -> None:
    check_sequences(20, number=1)


def test_the_rollouts_of_a_problem_that_was_labelled_anew_are_its_own(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.problems = {f"p{i}": (f"P{i} [answer {i}]", str(i)) for i in range(3)}
    run.label()
    run.problems["p0"] = (run.problems["p0"][0], "7")
    run.label()
    run.check()
    run.problems["p3"] = ("P3 [answer 3]", "3")
    for _ in range(2):
        run.label()
        run.check()
