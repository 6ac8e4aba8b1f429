"""One unusable row is left out with a reason, and only a strict job ends because of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mclabel import jobs
from mclabel.core.errors import DataError
from mclabel.core.records import Problem
from mclabel.data.exchange.formats import find_format
from mclabel.data.leaks import read_leak_keys
from mclabel.data.readers.rows import scan_rows
from mclabel.data.readers.solutions import read_solutions
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.support.commands import run_verb
from tests.support.labelled import arith_rows, write_run


def write(path: Path, rows: list[Any]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


TRL = {"prompt": "What is 1+1?", "completions": ["1+1=2.", "So 2."], "labels": [True, True]}
TRL_ROWS = [
    TRL,
    TRL | {"completions": ["1+2=3.", " "]},
    TRL | {"completions": [], "labels": []},
    TRL | {"labels": [True]},
    TRL | {"completions": ["a", None]},
    "text",
    TRL | {"prompt": "What is 1+6?"},
]


def test_import_leaves_out_rows_and_names_them(tmp_path: Path) -> None:
    file, run = write(tmp_path / "rows.jsonl", TRL_ROWS), tmp_path / "run"
    done = run_verb(["import", file, "--from", "trl", "-o", str(run)])
    assert "7 rows, 2 solutions of 2 problems" in done.output
    assert "5 rows or solutions were left out" in done.output
    assert len(list(read_labels(Store(str(run))))) == 2
    lines = (run / "rejects.jsonl").read_text().splitlines()
    assert [(reject["row"], reject["reason"]) for reject in map(json.loads, lines)] == [
        (2, "bad_solution"),
        (3, "bad_row"),
        (4, "bad_row"),
        (5, "bad_row"),
        (6, "not_an_object"),
    ]
    run_verb(["verify", str(run)])
    strict = ["import", file, "--from", "trl", "-o", str(tmp_path / "other"), "--strict"]
    done = run_verb(strict, code=2)
    assert "line 2: step 2 of 2 is blank" in done.output
    assert not (tmp_path / "other").exists()


def test_export_leaves_out_what_a_format_cannot_hold(tmp_path: Path) -> None:
    first, *rest = arith_rows(4)
    marked = replace(first, problem=replace(first.problem, text="As in Step 1: of it?"))
    run, out = write_run(tmp_path / "run", [marked, *rest]), tmp_path / "out"
    done = run_verb(["export", run, "--to", "rlhflow", "-o", str(out)])
    assert "In this export, 1 solutions were left out" in done.output
    assert len((out / "data.jsonl").read_text().splitlines()) == 3
    (line,) = map(json.loads, (out / "rejects.jsonl").read_text().splitlines())
    assert line["problem_id"] == first.problem.id and "'Step 1: '" in line["detail"]
    with pytest.raises(DataError, match="uses as a mark"):
        jobs.export_run(run, "rlhflow", str(out), strict=True)
    assert not list(out.glob("*.partial"))


def make_conversation(*contents: str) -> dict[str, Any]:
    pairs = zip(("user", "assistant") * len(contents), contents, strict=False)
    return {"conversations": [{"role": role, "content": text} for role, text in pairs]}


@pytest.mark.parametrize(
    ("row", "problem", "steps"),
    [
        (
            make_conversation(
                "Tom has 3? He buys 4. How many? To find it, we add.", "+", "3 + 4 = 8.", "-"
            ),
            "Tom has 3? He buys 4. How many?",
            ("To find it, we add.", "3 + 4 = 8."),
        ),
        (make_conversation("Find 3 + 4.\n\nIt is 7.", "+"), "Find 3 + 4.", ("It is 7.",)),
        (
            make_conversation(
                "Use Step 1: of the figure. How many? Step 1: 3 + 4.", "+", "Step 2: 7", "-"
            ),
            "Use Step 1: of the figure. How many?",
            ("3 + 4.", "7"),
        ),
    ],
)
def test_rlhflow_steps_without_numbers_and_marks_in_problems(
    row: dict[str, Any], problem: str, steps: tuple[str, ...]
) -> None:
    (record,) = find_format("rlhflow").read(row)
    assert (record.problem, record.steps) == (problem, steps)
    assert record.ratings == (1.0, 0.0)[: len(steps)]


@pytest.mark.parametrize("ending", [" ", "\r", "\t \r"])
def test_math_shepherd_with_blanks_behind_its_marks(ending: str) -> None:
    row = {
        "input": f"1 + 1? Step 1: It is 2. ки{ending}\nStep 2: So 2 ки",
        "label": f"1 + 1? Step 1: It is 2. +{ending}\nStep 2: So 2 -",
    }
    (record,) = find_format("math-shepherd").read(row)
    assert (record.problem, record.steps) == ("1 + 1?", ("It is 2.", "So 2"))
    assert record.ratings == (1.0, 0.0)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["p"])] * 3, names=["problem", "answer", "answer"])
    pq.write_table(table, tmp_path / "twice.parquet")
    (tmp_path / "twice.csv").write_text("problem,answer,answer\np,1,2\n")
    for name in ("twice.parquet", "twice.csv"):
        with pytest.raises(DataError, match=rf"{name}: has more than one column named 'answer'"):
            list(scan_rows(str(tmp_path / name)))


def test_a_problem_id_of_any_type_ends_nothing(tmp_path: Path) -> None:
    rows = [{"problem_id": 7, "solution": "a"}, {"problem_id": ["x"], "solution": "b"}]
    problems = [Problem(id="7", text="p", answer="1")]
    solutions = read_solutions(write(tmp_path / "s.jsonl", rows), problems)
    assert [solution.text for solution in solutions.by_problem["7"]] == ["a"]
    assert [reject.reason for reject in solutions.rejects] == ["unknown_problem"]


def test_rows_of_an_evaluation_set_without_a_problem_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "eval.jsonl", [{"problem": "1 + 1?"}, {"x": 1}, "text"])
    messages: list[str] = []
    assert len(read_leak_keys([file], messages.append)) == 1
    assert [message.partition(": ")[0] for message in messages] == [
        f"{file}, line 2",
        f"{file}, line 3",
    ]
    with pytest.raises(DataError, match="line 1: needs one of the columns problem"):
        read_leak_keys([write(tmp_path / "none.jsonl", [{"x": 1}])])
