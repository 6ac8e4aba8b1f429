"""Division of problems into blocks:

changed inputs, two drivers, foreign files, random sequences.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from mclabel.core.errors import DataError, ShardError
from mclabel.core.records import Problem
from mclabel.labeling.inputs import ProblemItem, ProblemItems
from mclabel.labeling.task import LABEL_OUTPUTS
from mclabel.report.viewer.index import Index
from mclabel.run.blocks import JobBlocks, plan_blocks
from mclabel.run.kinds import find_runs
from mclabel.run.shards.catalog import read_catalog
from mclabel.run.shards.labels import read_labels, read_rollouts
from mclabel.run.shards.plan import read_plan_parts
from mclabel.run.shards.store import Store
from mclabel.run.tally import JobReport
from tests.support.scripted_jobs import run_label_job

PER_PROBLEM = 2


def problem(name: str, version: int = 0, level: str = "1") -> dict[str, str]:
    return {
        "id": name,
        "problem": f"P{name} v{version} [answer {version}]",
        "answer": str(version),
        "level": level,
    }


def make_problems(*numbers: int) -> list[dict[str, str]]:
    return [problem(f"p{i}") for i in numbers]


def plan_problem_blocks(store: Store | None, problems: Sequence[Problem], size: int) -> JobBlocks:
    return plan_blocks(store, ProblemItems(problems), LABEL_OUTPUTS, identity={}, block_items=size)


class Run:
    """A job on the scripted policy whose input a test rewrites."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "out"
        self.source = folder / "problems.jsonl"

    @property
    def store(self) -> Store:
        return Store(str(self.out))

    def write(self, rows: Sequence[dict[str, str]]) -> None:
        self.source.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def label(self, *overrides: str, accept: bool = False) -> JobReport:
        base = [f"problems.source={self.source}", f"out={self.out}", "policy.engine=scripted"]
        base += ["ray.address=none", "block_problems=4", "estimator.rollouts=2"]
        base += [f"solutions.per_problem={PER_PROBLEM}"]
        return run_label_job([*base, *overrides], accept_changes=accept)

    def check(self, rows: Sequence[dict[str, str]], store: Store | None = None) -> None:
        """Check that the labels hold each problem of the input once, unchanged, and no other."""
        store = store or self.store
        labelled = [
            (row.problem.id, row.problem.text, row.problem.answer, row.solution.sample_index)
            for row in read_labels(store)
        ]
        assert sorted(labelled) == sorted(
            (row["id"], row["problem"], row["answer"], index)
            for row in rows
            for index in range(PER_PROBLEM)
        )
        solutions = [row.solution.id for row in read_labels(store)]
        assert len(solutions) == len(set(solutions))
        rolled = [(rollout.prefix_id, rollout.index) for rollout in read_rollouts(store)]
        assert len(rolled) == len(set(rolled))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.parametrize(("before", "after"), [(12, 16), (4, 44), (3, 5)])
def test_a_grown_input_costs_its_new_problems_alone(run: Run, before: int, after: int) -> None:
    run.write(make_problems(*range(before)))
    run.label()
    run.write(make_problems(*range(after)))
    report = run.label()
    assert (report.num_items, report.changes.num_added) == (after - before, after - before)
    run.check(make_problems(*range(after)))
    assert run.label().num_items == 0


def test_a_mended_gold_is_refused_then_labelled_anew(run: Run) -> None:
    run.write(make_problems(*range(8)))
    run.label()
    rows = [problem("p3", 1), *make_problems(7, 6, 5, 4, 2, 1)]
    run.write(rows)
    files = sorted(run.out.rglob("*"))
    with pytest.raises(
        ShardError, match=r"1 changed .*: p3\n  1 missing: p0 \(Pp0 v0 \[answer 0\]…\)\n"
    ):
        run.label()
    assert files == sorted(run.out.rglob("*"))
    report = run.label(accept=True)
    assert (report.num_items, report.changes.num_changed, report.changes.num_gone) == (1, 1, 1)
    run.check(rows)
    assert run.label().num_items == 0
    # the original input again: superseded problems stay superseded
    run.write(make_problems(*range(8)))
    assert run.label(accept=True).num_items == 2
    run.check(make_problems(*range(8)))


def test_other_columns_are_no_change_of_the_problem(run: Run) -> None:
    run.write(make_problems(*range(4)))
    run.label()
    run.write([problem(f"p{i}", level="2") for i in range(4)])
    report = run.label()
    assert (report.num_items, report.changes.num_other_meta) == (0, 4)
    run.check(make_problems(*range(4)))


def test_an_input_may_move_and_blocks_may_be_of_another_size(run: Run) -> None:
    run.write(make_problems(*range(8)))
    run.label()
    run.source = run.source.rename(run.folder / "elsewhere.jsonl")
    run.write(make_problems(*range(12)))
    report = run.label("block_problems=2")
    assert (report.num_blocks_resumed, report.num_blocks, report.num_items) == (2, 4, 4)
    run.check(make_problems(*range(12)))


def test_a_changed_given_solution_is_a_changed_problem(run: Run) -> None:
    run.write(make_problems(0, 1))
    solutions = run.folder / "solutions.jsonl"

    def give(text: str) -> None:
        rows = [{"problem_id": f"p{i}", "solution": f"{text}\n0"} for i in range(2)]
        solutions.write_text("".join(json.dumps(row) + "\n" for row in rows))

    give("one")
    run.label(f"solutions.path={solutions}")
    give("two")
    with pytest.raises(ShardError, match="2 changed"):
        run.label(f"solutions.path={solutions}")
    run.label(f"solutions.path={solutions}", accept=True)
    assert {row.solution.text for row in read_labels(run.store)} == {"two\n0"}


def test_a_file_that_is_none_of_the_runs_does_not_count(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.write(make_problems(*range(8)))
    run.label()
    shards = sorted((run.out / "labels").iterdir())
    shutil.copy(shards[0], run.out / "labels" / "0123456789abcdef.parquet")
    shards[1].unlink()
    assert run.label().num_items == 4
    assert "1 files in labels/ do not belong to any block of this run" in caplog.text
    assert read_catalog(run.store).foreign_files == ("labels/0123456789abcdef.parquet",)
    run.check(make_problems(*range(8)))


def test_a_viewer_that_follows_drops_what_is_superseded(run: Run) -> None:
    run.write(make_problems(*range(6)))
    run.label()
    index = Index(find_runs([str(run.out)]))
    index.refresh()
    rows = [problem("p1", 1), *make_problems(0, 2, 3, 6)]
    run.write(rows)
    run.label(accept=True)
    index.refresh()
    indexed = index.query("SELECT problem_id, problem FROM solutions")
    assert sorted((row["problem_id"], row["problem"]) for row in indexed) == sorted(
        (row["id"], row["problem"]) for row in rows for _ in range(PER_PROBLEM)
    )
    assert not index.refresh()
    index.close()


def test_two_drivers_with_different_inputs_agree_on_blocks(tmp_path: Path) -> None:
    """The second driver plans while the first one is between reading the plan and writing it."""
    few, many = ([Problem(id=f"p{i}", text=f"{i}", answer="1") for i in range(n)] for n in (6, 10))
    store = Store(str(tmp_path / "out"), create=True)
    other_counts: dict[str, int] = {}

    class Slow(list[Problem]):
        """A list that lets the other driver plan when it is first read."""

        def __iter__(self):  # type: ignore[no-untyped-def]
            if not other_counts:
                other_counts.update({"": 0})
                other_counts.update(plan_problem_blocks(store, few, 4).iter_item_counts())
            return super().__iter__()

    blocks = plan_problem_blocks(store, Slow(many), 4)
    del other_counts[""]
    assert sorted(other_counts.values()) == [2, 4]
    assert sorted(dict(blocks.iter_item_counts()).values()) == [2, 4, 4]
    assert other_counts.items() <= dict(blocks.iter_item_counts()).items()
    ids = [name for part in read_plan_parts(store) for name in part["item_id"].to_pylist()]
    assert sorted(ids) == sorted(p.id for p in many)


def test_large_plans_are_written_in_parts_and_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mclabel.run.blocks.MAX_PART_ROWS", 10)
    problems = [Problem(id=f"p{i}", text=f"{i}", answer="1") for i in range(50)]
    store = Store(str(tmp_path / "out"), create=True)
    blocks = plan_problem_blocks(store, problems, 4)
    assert len(store.names("plan")) == 5
    whole = [tuple(item.problem for item in block.items) for block in blocks.read_blocks()]
    assert whole == [tuple(problems[i : i + 4]) for i in range(0, 50, 4)]
    again = plan_problem_blocks(store, random.Random(0).sample(problems, 50), 7)
    assert {b.id: b.items for b in again.read_blocks()} == {
        b.id: b.items for b in blocks.read_blocks()
    }
    assert list(plan_problem_blocks(None, problems, 4).iter_item_counts()) == list(
        blocks.iter_item_counts()
    )


def test_an_input_that_changes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    problems = [Problem(id=f"p{i}", text=f"{i}", answer="1") for i in range(8)]
    blocks = plan_problem_blocks(None, problems, 4)
    del problems[2]
    with pytest.raises(DataError, match="8 problems at first, now 7: the input changed"):
        list(blocks.read_blocks())
    problems.append(Problem(id="new", text="", answer="1"))
    with pytest.raises(DataError, match="'new': the input changed"):
        list(blocks.read_blocks())


class Rewritten:
    """Problem items whose number changes between readings, as if the input file were rewritten."""

    def __init__(self, counts: list[int]) -> None:
        self.counts = counts

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[ProblemItem]:
        for i in range(self.counts.pop(0)):
            yield ProblemItem(Problem(id=f"p{i}", text=f"{i}", answer="1"))


@pytest.mark.parametrize("counts", [[3], [8, 3], [8, 8, 3], [9], [8, 8, 9]])
def test_an_input_that_changes_while_it_is_planned_is_an_error(
    counts: list[int], tmp_path: Path
) -> None:
    store = Store(str(tmp_path / "out"), create=True)
    items = Rewritten([*counts])
    with pytest.raises(DataError, match=r"there were 8 problems at first.*changed while"):
        plan_blocks(store, items, LABEL_OUTPUTS, identity={}, block_items=4)
