"""`mclabel select`, and `mclabel label --select`."""

from __future__ import annotations

import json
import random
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from mclabel import jobs
from mclabel.cli import main
from mclabel.cli.output import EXIT_INTERRUPTED
from mclabel.core.records import LabeledSolution
from mclabel.core.stats.pool import pool_mean
from mclabel.data.readers.solutions import read_selected
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.select.job import SelectConfig, SelectReport
from tests.support.labelled import arith_rows, train_tiny_prm, write_run
from tests.support.scripted_jobs import run_label_job

NUM_PROBLEMS, EACH = 6, 5


def mclabel(*arguments: object) -> Result:
    result = CliRunner(env={"COLUMNS": "400"}).invoke(main, [str(one) for one in arguments])
    assert "Traceback" not in result.output, result.output
    return result


def refused(*arguments: object) -> str:
    result = mclabel(*arguments)
    assert result.exit_code == 2, result.output
    return result.output


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """A file of problems with solutions; the scores of most of them are beside it."""
    rows: list[dict[str, Any]] = []
    for number in range(NUM_PROBLEMS):
        for sample in range(EACH):
            answer = number if sample % 2 else number + 1
            rows.append(
                {
                    "problem_id": f"p{number}",
                    "problem": f"P{number} [answer {number}]",
                    "answer": str(number),
                    "steps": [f"sample {sample}\n", f"The answer is {answer}."],
                    "outcome": "right" if sample % 2 else "wrong",
                }
            )
    rng = random.Random(0)
    scored = [{**row, "scores": [rng.random(), rng.random()]} for row in rows[:-2]]
    rng.shuffle(scored)
    write(tmp_path / "scores.jsonl", scored)
    return write(tmp_path / "pool.jsonl", rows)


def manifest(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def select(pool: object, out: Path, *more: object, budget: int = 10) -> Path:
    result = mclabel("select", pool, "--budget", budget, "-o", out, *more)
    assert result.exit_code == 0, result.output
    return out


def labelled(tmp_path: Path, name: str, *more: str) -> list[LabeledSolution]:
    base = [
        *("policy.engine=scripted", "ray.address=none", "estimator.kind=fixed", "block_problems=2"),
        *("estimator.rollouts=2", f"out={tmp_path / name}"),
    ]
    run_label_job([*base, *more])
    rows = read_labels(Store(str(tmp_path / name)))
    return sorted(rows, key=lambda row: row.solution.id)


def test_a_file_is_selected_from_and_labelled(tmp_path: Path, pool: Path) -> None:
    problems = write(
        tmp_path / "problems.jsonl",
        [
            {"id": f"p{n}", "problem": f"P{n} [answer {n}]", "answer": str(n)}
            for n in range(NUM_PROBLEMS)
        ],
    )
    options = ("--rule", "convincing", "--scores", tmp_path / "scores.jsonl")
    out = select(pool, tmp_path / "next.parquet", *options, "--uniform-share", 0.3)
    rows = {row["solution_id"]: row for row in manifest(out)}
    assert len(rows) == 10
    ruled = {name for name, row in rows.items() if row["rule"] == "convincing"}
    lines = [json.loads(line) for line in pool.read_text().splitlines()]
    assert [lines[int(name) - 1]["outcome"] for name in ruled].count("wrong") == 6  # of 7
    assert {rows[name]["probability"] for name in ruled} == {1.0}
    assert {row["probability"] for row in rows.values() if row["rule"] == "uniform"} == {3 / 23}
    all_of_them = labelled(tmp_path, "all", f"problems.source={problems}", f"solutions.path={pool}")
    run = mclabel(
        *("label", "/dev/null", "--select", out, f"problems.source={problems}"),
        *("policy.engine=scripted", "ray.address=none", "estimator.kind=fixed"),
        *("estimator.rollouts=2", "block_problems=2", f"out={tmp_path / 'run'}"),
    )
    assert run.exit_code == 0, run.output
    mine = list(read_labels(Store(str(tmp_path / "run"))))
    wanted = {lines[int(name) - 1]["problem_id"] + "".join(lines[int(name) - 1]["steps"]):
              row["probability"] for name, row in rows.items()}  # fmt: skip
    found = {row.problem.id + row.solution.text: row.selection_probability for row in mine}
    assert found == wanted and all(row.chosen_by_outcome for row in mine)
    # ids are those of a run that labels the whole file
    ids = {row.problem.id + row.solution.text: row.solution.id for row in all_of_them}
    assert all(ids[row.problem.id + row.solution.text] == row.solution.id for row in mine)
    assert {row.selection_probability for row in all_of_them} == {None}
    assert not list((tmp_path / "run").glob("rejects.jsonl"))
    exported = mclabel("export", tmp_path / "run", "--to", "parquet", "-o", tmp_path / "data")
    assert exported.exit_code == 0, exported.output
    tables = [pq.read_table(path) for path in (tmp_path / "data").rglob("labels*.parquet")]
    kept = [p for table in tables for p in table["selection_probability"].to_pylist()]
    assert sorted(kept) == sorted(wanted.values())


def test_solutions_of_a_run_are_selected_and_estimate_its_mean(tmp_path: Path) -> None:
    rows = [{"id": f"p{n}", "problem": f"P{n} [answer {n}]", "answer": str(n)} for n in range(8)]
    source = f"problems.source={write(tmp_path / 'problems.jsonl', rows)}"
    whole = labelled(tmp_path, "pool", source, "solutions.per_problem=4", "keep_rollouts=true")
    out = select(tmp_path / "pool", tmp_path / "next.parquet", "--rule", "uniform", budget=12)
    picked = [f"solutions.run={tmp_path / 'pool'}", f"solutions.select={out}"]
    mine = labelled(tmp_path, "run", source, *picked)
    by_id = {row.solution.id: row for row in whole}
    assert len(mine) == 12 and {row.selection_probability for row in mine} == {12 / 32}
    for row in mine:
        before = by_id[row.solution.id]
        assert row.solution == before.solution and not row.chosen_by_outcome
        # fixed rollouts of the same prefixes, the same free observations of the problem alone
        assert (row.steps, row.siblings) == (before.steps, before.siblings)
    about = read_selected(str(out)).about
    right = [float(row.solution.outcome == "right") for row in mine]
    found = pool_mean(
        right,
        [row.selection_probability or 0 for row in mine],
        num_pool=about["num_pool"],
        num_certain=about["num_certain"],
    )
    truth = sum(row.solution.outcome == "right" for row in whole) / 32
    assert found.low <= truth <= found.high
    # a selection of the selected: probabilities multiply
    second = select(tmp_path / "run", tmp_path / "second.parquet", "--rule", "uniform", budget=6)
    last = labelled(
        tmp_path, "last", source, f"solutions.run={tmp_path / 'run'}", f"solutions.select={second}"
    )
    assert {row.selection_probability for row in last} == {12 / 32 * 6 / 12}
    # and are kept where the run is graded again
    again = mclabel("regrade", tmp_path / "run", "-o", tmp_path / "again")
    assert again.exit_code == 0, again.output
    regraded = list(read_labels(Store(str(tmp_path / "again"))))
    assert {row.selection_probability for row in regraded} == {12 / 32}


def test_a_rule_takes_a_text_once(tmp_path: Path) -> None:
    row = {"problem": "P", "steps": ["a"], "outcome": "wrong"}
    pool = write(
        tmp_path / "pool.jsonl",
        [{**row, "scores": [0.9]}] * 3 + [{**row, "steps": ["b"], "scores": [0.1]}],
    )
    options = ("--rule", "convincing", "--scores", pool, "--uniform-share", 0)
    rows = manifest(select(pool, tmp_path / "next.parquet", *options, budget=2))
    assert [(row["solution_id"], row["rank"], row["score"]) for row in rows] == [
        ("1", 1, 0.9),
        ("4", 2, 0.1),
    ]
    assert "it ranks 2 and can take 2" in refused(
        *("select", pool, "-o", tmp_path / "more.parquet", "--budget", 3, *options)
    )


def test_what_was_chosen_before_is_left_out(tmp_path: Path, pool: Path) -> None:
    first = select(pool, tmp_path / "first.parquet", "--rule", "uniform", budget=20)
    second = tmp_path / "second.parquet"
    options = ("--rule", "uniform", "--exclude", first)
    rest = manifest(select(pool, second, *options, budget=10))
    ids = [row["solution_id"] for row in manifest(first)] + [row["solution_id"] for row in rest]
    assert sorted(ids, key=int) == [str(number) for number in range(1, 31)]
    assert {row["probability"] for row in rest} == {1.0}
    said = refused(
        *("select", pool, "-o", tmp_path / "third.parquet", "--budget", 1),
        *(*options, "--exclude", second),
    )
    assert "exclude leaves nothing of it. Give a larger pool" in said


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(train_tiny_prm(tmp_path_factory.mktemp("prm")))


def test_a_prm_scores_the_pool_and_is_named(tmp_path: Path, prm: Path) -> None:
    pool = write_run(tmp_path / "pool", arith_rows(12, per_problem=3, seed=1))
    options = ("--rule", "uncertain", "--prm", prm)
    out = select(pool, tmp_path / "next.parquet", *options, budget=6)
    first = out.read_bytes()
    assert read_selected(str(out)).about["prm"]["weights"]
    assert {row["score"] is None for row in manifest(out)} == {False}
    scores = tmp_path / "next.parquet.scores.jsonl"
    assert select(pool, out, *options, budget=6).read_bytes() == first
    again = select(
        pool, tmp_path / "again.parquet", "--rule", "uncertain", "--scores", scores, budget=6
    )
    assert manifest(again) == manifest(out)


def test_a_killed_selection_is_resumed(
    tmp_path: Path, prm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the scores and the manifest, and while the scores are being written."""
    pool = write_run(tmp_path / "pool", arith_rows(12, per_problem=3, seed=1))
    options = ("--rule", "convincing", "--prm", prm)
    whole = select(pool, tmp_path / "whole.parquet", *options, budget=6)
    out = tmp_path / "next.parquet"
    for module, name in (("select.job", "choose"), ("judge.score", "_deliver")):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[f"mclabel.{module}"], name, _killed)
            ended = mclabel("select", pool, *options, "--budget", 6, "-o", out)
            assert ended.exit_code == EXIT_INTERRUPTED
        assert not out.exists()
    assert manifest(select(pool, out, *options, budget=6)) == manifest(whole)


def _killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_what_is_refused(tmp_path: Path, pool: Path) -> None:
    scores, out = tmp_path / "scores.jsonl", tmp_path / "next.parquet"
    base = ("select", pool, "-o", out)
    cases: list[tuple[tuple[object, ...], str]] = [
        (
            ("--rule", "uniform", "--budget", 31),
            "there are 30 solutions to choose from. Give at most 30",
        ),
        (
            ("--rule", "uncertain", "--budget", 3),
            "ranks by scores, and none are given. Give --prm PRM",
        ),
        (
            ("--rule", "uncertain", "--budget", 3, "--prm", "x", "--scores", scores),
            "prm and scores are both given",
        ),
        (("--rule", "best", "--budget", 3), "Choose one of uniform, convincing, uncertain"),
        (("--rule", "uniform", "--budget", 3, "--uniform-share", 1.5), "uniform-share"),
        (
            ("--rule", "uncertain", "--scores", scores, "--budget", 30, "--uniform-share", 0),
            "the rule is to choose 30 solutions, but of 30 in the pool it ranks 28",
        ),
        (
            ("--rule", "math:exp", "--scores", scores, "--budget", 3),
            "rule=math:exp: its parameter",
        ),
    ]
    for more, said in cases:
        assert said in refused(*base, *more)
    other = write(tmp_path / "other.jsonl", [{"problem": "Q", "solution": "x", "scores": [0.5]}])
    said = refused(*base, "--rule", "uncertain", "--scores", other, "--budget", 3)
    assert "none of its 1 solutions is in" in said and "Give the scores of this pool" in said
    said = refused(
        *("select", other, "-o", out, "--rule", "convincing", "--scores", other, "--budget", 1)
    )
    assert "chooses by whether answers are wrong, which no row of" in said
    assert "must be a local file that ends in .parquet" in refused(
        *("select", pool, "-o", tmp_path / "next.jsonl", "--rule", "uniform", "--budget", 3)
    )
    bad = write(tmp_path / "bad.jsonl", [{"problem": "Q", "solution": "x", "outcome": "good"}])
    said = refused("select", bad, "-o", out, "--rule", "uniform", "--budget", 1)
    assert "bad.jsonl, line 1: 'good' is not a valid Outcome. Give outcome (right, wrong" in said
    assert not list(tmp_path.glob("next*"))


def test_a_manifest_of_another_selection_is_not_overwritten(tmp_path: Path, pool: Path) -> None:
    out = tmp_path / "m.parquet"
    chosen = ["select", pool, "--rule", "uniform", "-o", out]
    assert mclabel(*chosen, "--budget", 3).exit_code == 0
    before = out.read_bytes()
    assert mclabel(*chosen, "--budget", 3).exit_code == 0
    assert "another selection (budget=3, not 4)" in refused(*chosen, "--budget", 4)
    assert "another selection (seed=0, not 1)" in refused(*chosen, "--budget", 3, "--seed", 1)
    pool.write_text(pool.read_text().partition("\n")[2])
    said = refused(*chosen, "--budget", 3)
    assert "its settings, pool or scores were others" in said and "delete the file first" in said
    assert out.read_bytes() == before
    out.write_text("notes")
    assert "is no manifest of a selection" in refused(*chosen, "--budget", 3)
    assert out.read_text() == "notes"


def test_a_budget_that_leaves_nothing_to_the_rule(tmp_path: Path, pool: Path) -> None:
    for budget, is_said in ((1, True), (2, False)):
        given = ("--scores", tmp_path / "scores.jsonl", "-o", tmp_path / f"{budget}.parquet")
        found = mclabel("select", pool, "--rule", "uncertain", "--budget", budget, *given)
        assert found.exit_code == 0 and ("leaves nothing to the rule" in found.output) == is_said


def test_a_manifest_of_another_pool(tmp_path: Path, pool: Path) -> None:
    out = select(pool, tmp_path / "next.parquet", "--rule", "uniform", budget=30)
    lines = pool.read_text().splitlines()
    rows = [{"id": f"p{n}", "problem": f"P{n} [answer {n}]", "answer": str(n)} for n in range(6)]
    source = f"problems.source={write(tmp_path / 'problems.jsonl', rows)}"
    base = ("label", "/dev/null", source, f"out={tmp_path / 'run'}", "policy.engine=scripted")
    base = (*base, "ray.address=none")
    moved = tmp_path / "moved.jsonl"
    moved.write_text("\n".join(lines[:-1]) + "\n")
    said = refused(*base, f"solutions.select={out}", f"solutions.path={moved}")
    assert f"is a selection from another pool ({pool})" in said
    assert "lacks 1 of its 30 solutions, such as 30. Give that pool unchanged, or select" in said
    moved.write_text("\n".join(reversed(lines)) + "\n")
    said = refused(*base, f"solutions.select={out}", f"solutions.path={moved}")
    assert "solution 1 has another text" in said
    assert "is no manifest of a selection" in refused(
        *base, f"solutions.select={pool}", f"solutions.path={pool}"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_20_000_solutions_in_bounded_memory(tmp_path: Path) -> None:
    """Their texts, some 20 MB, are never held together."""
    rng, small, pool = random.Random(0), tmp_path / "small.jsonl", tmp_path / "pool.jsonl"
    for path, count in ((small, 100), (pool, 20_000)):
        with path.open("w") as file:
            for number in range(count):
                steps = [f"{number} {'step ' * 40}{i}" for i in range(5)]
                row = {"problem_id": f"p{number // 50}", "problem": f"P{number // 50}",
                       "steps": steps, "outcome": rng.choice(["right", "wrong"]),
                       "scores": [rng.random() for _ in steps]}  # fmt: skip
                file.write(json.dumps(row) + "\n")
    assert pool.stat().st_size > 2e7

    def selected(path: Path, budget: int) -> SelectReport:
        out = str(path.with_suffix(".parquet"))
        return jobs.select(
            SelectConfig(
                solutions=str(path), scores=str(path), out=out, rule="convincing", budget=budget
            )
        )

    selected(small, 2)  # what is imported and cached once
    tracemalloc.start()
    report = selected(pool, 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak {peak / 1e6:.0f} MB")
    assert (report.num_pool, report.num_certain, report.num_wrong) == (20_000, 340, 272)
    assert peak < 1.6e7
