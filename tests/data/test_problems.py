from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mclabel.answers import Checker
from mclabel.data.problems import read_problems, unparsed_golds
from mclabel.data.solutions import read_solutions
from mclabel.errors import DataError
from mclabel.records import Problem

ROWS = [
    {"problem": "1+1?", "answer": "2", "level": 1},
    {"problem": "2+2?", "answer": "so \\boxed{4}", "level": 2},
]


def write(path: Path, rows: list[dict[str, object]]) -> str:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        keys = list(rows[0])
        lines = [",".join(keys), *(",".join(str(row[k]) for k in keys) for row in rows)]
        path.write_text("\n".join(lines))
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv"])
def test_every_format_gives_the_same_problems(tmp_path: Path, suffix: str) -> None:
    problems = list(read_problems(write(tmp_path / f"p{suffix}", ROWS)))
    assert [(p.text, p.answer) for p in problems] == [("1+1?", "2"), ("2+2?", "4")]
    assert [p.meta["level"] for p in problems] == ["1", "2"]
    assert problems == list(read_problems(write(tmp_path / "q.jsonl", ROWS)))


def test_gsm8k_and_math_golds(public_data: Path) -> None:
    gsm8k = list(read_problems(str(public_data / "gsm8k_test.jsonl")))
    assert (len(gsm8k), gsm8k[0].answer) == (1319, "18")
    math = list(read_problems(str(public_data / "math500.jsonl"), limit=3))
    assert math[0].answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert math[0].meta["subject"] == "Precalculus"


def test_a_local_hugging_face_data_set(tmp_path: Path) -> None:
    write(tmp_path / "data.jsonl", ROWS)
    problems = read_problems(f"hf:{tmp_path}", split="train")
    assert [p.answer for p in problems] == ["2", "4"]


def test_limit_and_repeated_rows(tmp_path: Path) -> None:
    more = {"problem": "3+3?", "answer": "6", "level": 1}
    path = write(tmp_path / "p.jsonl", [*ROWS, *ROWS, more, ROWS[0]])
    for limit, answers in [(None, "246"), (9, "246"), (3, "246"), (2, "24"), (1, "2")]:
        problems = read_problems(path, limit=limit)
        assert len(problems) == len(answers)
        for _ in range(2):  # it can be gone through again
            assert "".join(p.answer for p in problems) == answers


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (
            [{"problem": "x", "answer": ""}],
            r"p.jsonl, line 1: the answer in column 'answer' is empty",
        ),
        (
            [{"problem": "x"}],
            r"line 1: no answer: .* the row has problem. Set problems.answer_column",
        ),
        ([{"answer": "2"}], r"line 1: no problem"),
        ([{"problem": "x", "answer": None}], r"line 1: the answer in column 'answer' is empty"),
        (
            [
                {"id": "a", "problem": "x", "answer": "1"},
                {"id": "a", "problem": "y", "answer": "1"},
            ],
            r"line 2: id 'a' names another problem",
        ),
        ([], "holds no problems"),
        ([[1]], "line 1: must be an object"),
    ],
)
def test_bad_rows_name_their_place(tmp_path: Path, rows: list, fault: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match=fault):
        read_problems(write(tmp_path / "p.jsonl", rows))


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_problems(str(tmp_path / "none.jsonl"))
    (tmp_path / "x.txt").write_text("x")
    with pytest.raises(DataError, match=r"must be \.jsonl"):
        read_problems(str(tmp_path / "x.txt"))
    (tmp_path / "x.jsonl").write_bytes(b'{"problem": "\xff"}')
    with pytest.raises(DataError, match="line 1: not valid JSON"):
        read_problems(str(tmp_path / "x.jsonl"))
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_problems(str(tmp_path / "x.parquet"))
    with pytest.raises(DataError, match="cannot load split"):
        read_problems(f"hf:{tmp_path / 'nowhere'}")


PROBLEMS = [
    Problem(id="a", text="1+1?", answer="2"),
    Problem(id="b", text="2+2?", answer="4"),
]


def test_given_solutions_by_id_or_text(tmp_path: Path) -> None:
    path = write(
        tmp_path / "s.jsonl",
        [
            {"problem_id": "a", "solution": "one\ntwo"},
            {"problem": "2+2?", "steps": ["first\nstill first", "second"]},
            {"problem_id": "a", "solution": "again"},
        ],
    )
    given = read_solutions(path, PROBLEMS)
    assert [s.text for s in given["a"]] == ["one\ntwo", "again"]
    assert given["b"][0].text == "first\nstill first\nsecond"
    assert given["b"][0].step_ends == (18, 24)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"problem_id": "z", "solution": "s"}], "line 1: answers no known problem"),
        ([{"problem_id": "a", "steps": []}], "line 1: steps must be a list of texts"),
        ([{"problem_id": "a", "solution": " "}], "line 1: needs a solution"),
        ([{"problem_id": "a", "solution": "s"}], "no solution for 1 of 2 problems, .* 'b'"),
    ],
)
def test_bad_solutions(tmp_path: Path, rows: list, fault: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match=fault):
        read_solutions(write(tmp_path / "s.jsonl", rows), PROBLEMS)


def test_golds_that_the_checker_does_not_understand_are_named() -> None:
    golds = {"a": "12", "b": "x^2 + 1", "c": "Thursday", "d": r"\oint_C f", "e": "|x| < 3"}
    problems = [Problem(id=i, text="?", answer=gold) for i, gold in golds.items()]
    assert unparsed_golds(problems) == {"d": "unknown_command"}


def test_understood_golds_start_no_worker() -> None:
    checker = Checker()
    problems = [Problem(id=g, text="?", answer=g) for g in ("1/2", "(1, 2)", "x > 3", "5 cm")]
    assert unparsed_golds(problems, checker=checker) == {}
    assert checker.worker_pids() == []
