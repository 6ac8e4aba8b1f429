"""Random sequences of changed inputs, labelling, merges and failures of the store.

After each, code that shares nothing with the package's readers counts every label's rollouts.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from mclabel import jobs
from mclabel.core.config.load import load_config
from mclabel.core.errors import ShardError
from mclabel.labeling.config import LabelConfig
from mclabel.run.shards.compact import compact
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.audit import audit

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
        config = load_config(
            LabelConfig,
            None,
            [
                *(f"out={self.out}", "policy.engine=scripted", "ray.address=none", "seed=3"),
                *("block_problems=2", f"problems.source={source}", "estimator.rollouts=3"),
                f"solutions.per_problem={PER_PROBLEM}",
            ],
        )

        def choose(blocks: Any) -> list[str]:
            self.labelled = {name: answer for name, (_, answer) in self.problems.items()}
            names = [name for name, _ in blocks.sizes()]
            return names if num_blocks is None else names[:num_blocks]

        with dying(dies_after) as is_dead:
            self.is_complete = False
            try:
                jobs.label(config, lambda state: None, choose=choose, accept_changes=True)
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
