"""Random sequences of changed inputs, labelling jobs and store failures.

After each step, the run is verified, and each problem's labels are compared with the input.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from mclabel.core.errors import ShardError
from mclabel.run.shards.labels import read_committed_block_ids, read_labels
from mclabel.run.shards.store import Store
from mclabel.run.verify.run import verify
from tests.support.scripted_jobs import run_label_job

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
    """A labelling run, its latest input, and the changes of the input."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "run"
        self.problems: dict[str, tuple[str, str]] = {}
        """Text and answer of each problem, by id."""
        self.labelled: dict[str, str] = {}
        """Answers that the plan already contains, by problem id."""
        self.is_complete = False
        self._count = 0

    def label(self, *, num_blocks: int | None = None, dies_after: int | None = None) -> None:
        """Label all blocks of the current input, or some of them, until the store fails."""
        source = self.folder / "problems.jsonl"
        rows = [{"id": i, "problem": p, "answer": a} for i, (p, a) in self.problems.items()]
        source.write_text("\n".join(map(json.dumps, rows)))

        def choose(blocks: Any) -> list[str]:
            self.labelled = {name: answer for name, (_, answer) in self.problems.items()}
            names = [name for name, _ in blocks.iter_item_counts()]
            return names if num_blocks is None else names[:num_blocks]

        with fail_stores_after(dies_after) as is_dead:
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
        """Check that the run is sound, and that each problem has its labels once."""
        if not self.labelled:
            return
        store = Store(str(self.out))
        verification = verify(store)
        assert verification.is_sound, verification.damage
        blocks = read_committed_block_ids(store, require_complete=self.is_complete)
        rows = read_labels(store, blocks) if blocks else ()
        counts = Counter((row.problem.id, row.problem.answer) for row in rows)
        assert set(counts.values()) <= {PER_PROBLEM} and counts.keys() <= self.labelled.items()
        assert not self.is_complete or counts.keys() == self.labelled.items()

    def step(self, step: Step) -> None:
        """Take a step, and check the result."""
        edit, place, answer = step.edit
        getattr(self, edit)(*[place % 3 + 1] if edit == "add" else [place, answer])
        self.label(num_blocks=step.num_blocks, dies_after=step.label_dies_after)
        self.check()

    def add(self, count: int) -> None:
        for _ in range(count):
            self._count += 1
            self._set_problem(f"p{self._count}", str(self._count))

    def change_gold(self, place: int, answer: int) -> None:
        """Set another gold, which may equal an earlier gold."""
        name = self._name(place)
        self._set_problem(name, str(answer), text=self.problems[name][0])

    def change_text(self, place: int, answer: int) -> None:
        self._set_problem(self._name(place), str(answer))

    def remove(self, place: int, answer: int) -> None:
        if len(self.problems) > 1:
            del self.problems[self._name(place)]

    def reorder(self, place: int, answer: int) -> None:
        items = list(self.problems.items())
        random.Random(place).shuffle(items)
        self.problems = dict(items)

    def _name(self, place: int) -> str:
        return sorted(self.problems)[place % len(self.problems)]

    def _set_problem(self, name: str, answer: str, text: str | None = None) -> None:
        text = f"{name} [answer {answer}]" if text is None else text
        self.problems[name] = (text, answer)


@contextmanager
def fail_stores_after(after: int | None) -> Iterator[Callable[[], bool]]:
    """Let every store fail permanently after some writes and deletions, as if its disk were lost.

    Yields a function that says whether the store has failed.
    """
    writes_left = after
    patch = pytest.MonkeyPatch()

    def step() -> None:
        nonlocal writes_left
        if writes_left is not None:
            if writes_left <= 0:
                writes_left = -1
                raise ShardError("the disk is gone")
            writes_left -= 1

    for name in ("create", "append", "replace", "delete"):
        method = getattr(Store, name)
        patch.setattr(
            Store, name, lambda store, *args, method=method: (step(), method(store, *args))[1]
        )
    try:
        yield lambda: writes_left == -1
    finally:
        patch.undo()


@pytest.mark.slow
@seed(1)
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(STEPS, min_size=3, max_size=6))
def test_twenty_sequences(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder))
        run.add(3)
        for step in steps:
            run.step(step)
        run.label()
        run.check()
