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
from click.testing import Result

from mclabel import jobs
from mclabel.cli.output import EXIT_INTERRUPTED
from mclabel.core.records import LabeledSolution
from mclabel.core.stats.pool import estimate_pool_mean
from mclabel.data.readers.solutions import read_selected
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from mclabel.select.job import SelectConfig, SelectReport
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, train_tiny_prm, write_run
from tests.support.scripted_jobs import run_label_job

NUM_PROBLEMS, EACH = 6, 5


def run_mclabel(*arguments: object, code: int = 0) -> Result:
    return run_verb([str(argument) for argument in arguments], code=code)


def run_refused(*arguments: object) -> str:
    return run_mclabel(*arguments, code=2).output


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_problems(folder: Path, count: int) -> str:
    rows = [
        {"id": f"p{n}", "problem": f"P{n} [answer {n}]", "answer": str(n)} for n in range(count)
    ]
    return f"problems.source={write_rows(folder / 'problems.jsonl', rows)}"


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Write a file of problems with solutions, and the scores of most solutions in another file."""
    rows: list[dict[str, Any]] = [
        {
            "problem_id": f"p{number}",
            "problem": f"P{number} [answer {number}]",
            "answer": str(number),
            "steps": [f"sample {sample}\n", f"The answer is {number + 1 - sample % 2}."],
            "outcome": "right" if sample % 2 else "wrong",
        }
        for number in range(NUM_PROBLEMS)
        for sample in range(EACH)
    ]
    rng = random.Random(0)
    scored = [{**row, "scores": [rng.random(), rng.random()]} for row in rows[:-2]]
    rng.shuffle(scored)
    write_rows(tmp_path / "scores.jsonl", scored)
    return write_rows(tmp_path / "pool.jsonl", rows)


def read_manifest(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def select_rows(pool: object, out: Path, *more: object, budget: int = 10) -> Path:
    run_mclabel("select", pool, "--budget", budget, "-o", out, *more)
    return out


def label_rows(tmp_path: Path, name: str, *more: str) -> list[LabeledSolution]:
    base = [
        *("policy.engine=scripted", "ray.address=none", "estimator.kind=fixed", "block_problems=2"),
        *("estimator.rollouts=2", f"out={tmp_path / name}"),
    ]
    run_label_job([*base, *more])
    return sorted(read_labels(Store(str(tmp_path / name))), key=lambda row: row.solution.id)


def test_a_file_is_selected_from_and_labelled(tmp_path: Path, pool: Path) -> None:
    problems = write_problems(tmp_path, NUM_PROBLEMS)
    out = select_rows(
        pool,
        tmp_path / "next.parquet",
        "--rule",
        "convincing",
        "--scores",
        tmp_path / "scores.jsonl",
        "--uniform-share",
        0.3,
    )
    rows = {row["solution_id"]: row for row in read_manifest(out)}
    assert len(rows) == 10
    ruled = {name for name, row in rows.items() if row["rule"] == "convincing"}
    lines = [json.loads(line) for line in pool.read_text().splitlines()]
    assert [lines[int(name) - 1]["outcome"] for name in ruled].count("wrong") == 6  # of the 7
    assert {rows[name]["probability"] for name in ruled} == {1.0}
    assert {row["probability"] for row in rows.values() if row["rule"] == "uniform"} == {3 / 23}
    all_of_them = label_rows(tmp_path, "all", problems, f"solutions.path={pool}")
    run_mclabel(
        *("label", "/dev/null", "--select", out, problems),
        *("policy.engine=scripted", "ray.address=none", "estimator.kind=fixed"),
        *("estimator.rollouts=2", "block_problems=2", f"out={tmp_path / 'run'}"),
    )
    mine = list(read_labels(Store(str(tmp_path / "run"))))
    wanted = {lines[int(name) - 1]["problem_id"] + "".join(lines[int(name) - 1]["steps"]):
              row["probability"] for name, row in rows.items()}  # fmt: skip
    assert {
        row.problem.id + row.solution.text: row.selection_probability for row in mine
    } == wanted and all(row.chosen_by_outcome for row in mine)
    # ids equal those of a run that labels the whole file
    ids = {row.problem.id + row.solution.text: row.solution.id for row in all_of_them}
    assert all(ids[row.problem.id + row.solution.text] == row.solution.id for row in mine)
    assert {row.selection_probability for row in all_of_them} == {None}
    assert not list((tmp_path / "run").glob("rejects.jsonl"))
    run_mclabel("export", tmp_path / "run", "--to", "parquet", "-o", tmp_path / "data")
    (table,) = [pq.read_table(path) for path in (tmp_path / "data").rglob("labels*.parquet")]
    assert sorted(table["selection_probability"].to_pylist()) == sorted(wanted.values())


def test_solutions_of_a_run_are_selected_and_estimate_its_mean(tmp_path: Path) -> None:
    source = write_problems(tmp_path, 8)
    whole = label_rows(tmp_path, "pool", source, "solutions.per_problem=4", "keep_rollouts=true")
    out = select_rows(tmp_path / "pool", tmp_path / "next.parquet", "--rule", "uniform", budget=12)
    mine = label_rows(
        tmp_path, "run", source, f"solutions.run={tmp_path / 'pool'}", f"solutions.select={out}"
    )
    by_id = {row.solution.id: row for row in whole}
    assert len(mine) == 12 and {row.selection_probability for row in mine} == {12 / 32}
    for row in mine:
        before = by_id[row.solution.id]
        assert row.solution == before.solution and not row.chosen_by_outcome
        # the prefixes have the same fixed rollouts, and the problem the same sibling solutions
        assert (row.steps, row.siblings) == (before.steps, before.siblings)
    about = read_selected(str(out)).about
    right = [float(row.solution.outcome == "right") for row in mine]
    mean = estimate_pool_mean(
        right,
        [row.selection_probability or 0 for row in mine],
        num_pool=about["num_pool"],
        num_certain=about["num_certain"],
    )
    assert mean.low <= (sum(row.solution.outcome == "right" for row in whole) / 32) <= mean.high
    # for a selection from a selection, the probabilities multiply
    second = select_rows(
        tmp_path / "run", tmp_path / "second.parquet", "--rule", "uniform", budget=6
    )
    last = label_rows(
        tmp_path, "last", source, f"solutions.run={tmp_path / 'run'}", f"solutions.select={second}"
    )
    assert {row.selection_probability for row in last} == {12 / 32 * 6 / 12}
    # regrading keeps the probabilities
    run_mclabel("regrade", tmp_path / "run", "-o", tmp_path / "again")
    assert {row.selection_probability for row in read_labels(Store(str(tmp_path / "again")))} == {
        12 / 32
    }


def test_a_rule_takes_a_text_once(tmp_path: Path) -> None:
    row = {"problem": "P", "steps": ["a"], "outcome": "wrong"}
    pool = write_rows(
        tmp_path / "pool.jsonl",
        [{**row, "scores": [0.9]}] * 3 + [{**row, "steps": ["b"], "scores": [0.1]}],
    )
    options = ("--rule", "convincing", "--scores", pool, "--uniform-share", 0)
    rows = read_manifest(select_rows(pool, tmp_path / "next.parquet", *options, budget=2))
    assert [(row["solution_id"], row["rank"], row["score"]) for row in rows] == [
        ("1", 1, 0.9),
        ("4", 2, 0.1),
    ]
    assert "it ranks 2 and can choose 2" in run_refused(
        *("select", pool, "-o", tmp_path / "more.parquet", "--budget", 3, *options)
    )


def test_what_was_chosen_before_is_left_out(tmp_path: Path, pool: Path) -> None:
    first = select_rows(pool, tmp_path / "first.parquet", "--rule", "uniform", budget=20)
    second = tmp_path / "second.parquet"
    options = ("--rule", "uniform", "--exclude", first)
    rest = read_manifest(select_rows(pool, second, *options, budget=10))
    ids = [row["solution_id"] for row in read_manifest(first)] + [
        row["solution_id"] for row in rest
    ]
    assert sorted(ids, key=int) == [str(number) for number in range(1, 31)]
    assert {row["probability"] for row in rest} == {1.0}
    message = run_refused(
        *("select", pool, "-o", tmp_path / "third.parquet", "--budget", 1),
        *(*options, "--exclude", second),
    )
    assert "manifests of exclude, so none is left. Give a larger pool" in message


@pytest.fixture(scope="module")
def prm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(train_tiny_prm(tmp_path_factory.mktemp("prm")))


def test_a_prm_scores_the_pool_and_is_named(tmp_path: Path, prm: Path) -> None:
    pool = write_run(tmp_path / "pool", arith_rows(12, per_problem=3, seed=1))
    options = ("--rule", "convincing", "--prm", prm)
    out = select_rows(pool, tmp_path / "next.parquet", *options, budget=6)
    first = out.read_bytes()
    assert read_selected(str(out)).about["prm"]["weights"]
    assert {row["score"] is None for row in read_manifest(out)} == {False}
    assert select_rows(pool, out, *options, budget=6).read_bytes() == first
    assert read_manifest(
        select_rows(
            pool,
            tmp_path / "again.parquet",
            "--rule",
            "convincing",
            "--scores",
            tmp_path / "next.parquet.scores.jsonl",
            budget=6,
        )
    ) == read_manifest(out)


def test_a_killed_selection_is_resumed(
    tmp_path: Path, prm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill comes between the scores and the manifest, or while the scores are written."""
    pool = write_run(tmp_path / "pool", arith_rows(12, per_problem=3, seed=1))
    options = ("--rule", "convincing", "--prm", prm)
    whole = select_rows(pool, tmp_path / "whole.parquet", *options, budget=6)
    out = tmp_path / "next.parquet"
    for module, name in (("select.job", "choose_solutions"), ("judge.score", "_write_outputs")):
        with monkeypatch.context() as patch:
            patch.setattr(sys.modules[f"mclabel.{module}"], name, _interrupt)
            run_mclabel("select", pool, *options, "--budget", 6, "-o", out, code=EXIT_INTERRUPTED)
        assert not out.exists()
    assert read_manifest(select_rows(pool, out, *options, budget=6)) == read_manifest(whole)


def _interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_what_is_refused(tmp_path: Path, pool: Path) -> None:
    scores, out = tmp_path / "scores.jsonl", tmp_path / "next.parquet"
    other_scores = write_rows(
        tmp_path / "other.jsonl", [{"problem": "Q", "solution": "x", "scores": [0.5]}]
    )
    bad = write_rows(tmp_path / "bad.jsonl", [{"problem": "Q", "solution": "x", "outcome": "good"}])
    uniform, convincing = ("--rule", "uniform"), ("--rule", "convincing")
    cases: list[tuple[Path, Path, int, tuple[object, ...], str]] = [
        (pool, out, 31, uniform, "there are 30 solutions to choose from. Give at most 30"),
        (pool, out, 3, convincing, "ranks by scores, but no scores are given. Give --prm PRM"),
        (
            pool,
            out,
            3,
            (*convincing, "--prm", "x", "--scores", scores),
            "prm and scores are both given",
        ),
        (pool, out, 3, ("--rule", "best"), "Choose one of uniform, convincing"),
        (pool, out, 3, (*uniform, "--uniform-share", 1.5), "uniform-share"),
        (
            pool,
            out,
            30,
            (*convincing, "--scores", scores, "--uniform-share", 0),
            "the rule is to choose 30 solutions, but of 30 in the pool it ranks 28",
        ),
        (pool, out, 3, ("--rule", "math:exp", "--scores", scores), "rule=math:exp: its parameter"),
        (pool, out, 3, (*convincing, "--scores", other_scores), "Give the scores of this pool"),
        (
            other_scores,
            out,
            1,
            ("--rule", "convincing", "--scores", other_scores),
            "prefers wrong answers, but no row of",
        ),
        (
            pool,
            tmp_path / "next.jsonl",
            3,
            uniform,
            "must be a local file that ends in .parquet",
        ),
        (
            bad,
            out,
            1,
            uniform,
            "bad.jsonl, line 1: 'good' is not a valid Outcome. Give outcome (right, wrong",
        ),
    ]
    for given_pool, to, budget, more, message in cases:
        assert message in run_refused("select", given_pool, "-o", to, "--budget", budget, *more)
    assert not list(tmp_path.glob("next*"))


def test_a_manifest_of_another_selection_is_not_overwritten(tmp_path: Path, pool: Path) -> None:
    out = tmp_path / "m.parquet"
    chosen = ["select", pool, "--rule", "uniform", "-o", out]
    run_mclabel(*chosen, "--budget", 3)
    before = out.read_bytes()
    run_mclabel(*chosen, "--budget", 3)
    assert "another selection (budget=3, not 4)" in run_refused(*chosen, "--budget", 4)
    assert "another selection (seed=0, not 1)" in run_refused(*chosen, "--budget", 3, "--seed", 1)
    pool.write_text(pool.read_text().partition("\n")[2])
    message = run_refused(*chosen, "--budget", 3)
    assert "made from other settings, another pool or other scores" in message
    assert "delete the file first" in message and out.read_bytes() == before
    out.write_text("notes")
    assert "is not a selection manifest" in run_refused(*chosen, "--budget", 3)
    assert out.read_text() == "notes"


def test_a_manifest_of_another_pool(tmp_path: Path, pool: Path) -> None:
    out = select_rows(pool, tmp_path / "next.parquet", "--rule", "uniform", budget=30)
    lines = pool.read_text().splitlines()
    base = (
        "label",
        "/dev/null",
        write_problems(tmp_path, 6),
        f"out={tmp_path / 'run'}",
        "policy.engine=scripted",
    )
    base = (*base, "ray.address=none")
    moved = tmp_path / "moved.jsonl"
    moved.write_text("\n".join(lines[:-1]) + "\n")
    message = run_refused(*base, f"solutions.select={out}", f"solutions.path={moved}")
    assert f"is a selection from another pool ({pool})" in message
    assert "lacks 1 of its 30 solutions, such as 30. Give that pool unchanged, or select" in message
    moved.write_text("\n".join(reversed(lines)) + "\n")
    message = run_refused(*base, f"solutions.select={out}", f"solutions.path={moved}")
    assert "solution 1 has another text" in message
    assert "is not a selection manifest" in run_refused(
        *base, f"solutions.select={pool}", f"solutions.path={pool}"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_20_000_solutions_in_bounded_memory(tmp_path: Path) -> None:
    """Their texts, about 20 MB, are never all in memory."""
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

    def select_from(path: Path, budget: int) -> SelectReport:
        return jobs.select(
            SelectConfig(
                solutions=str(path),
                scores=str(path),
                out=str(path.with_suffix(".parquet")),
                rule="convincing",
                budget=budget,
            )
        )

    select_from(small, 2)  # imports and caches that happen only once
    tracemalloc.start()
    report = select_from(pool, 400)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"peak {peak / 1e6:.0f} MB")
    assert (report.num_pool, report.num_certain, report.num_wrong) == (20_000, 340, 272)
    assert peak < 1.6e7
