from __future__ import annotations

import json
from math import nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mclabel.core.errors import DataError, RejectReason
from mclabel.core.records import Problem
from mclabel.data.given import convert_to_row, iterate_given_rows
from mclabel.data.readers.base import make_reader_settings
from mclabel.data.readers.problem_rows import read_problem
from mclabel.data.readers.problems import read_problems
from mclabel.data.readers.solutions import read_solutions
from mclabel.prm.scoring.items import Solutions, read_file_items
from mclabel.run.shards.rejects import Reject

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


DAPO: dict[str, Any] = {
    "data_source": "math_dapo",
    "prompt": [
        {"role": "user", "content": "Solve it step by step.\n\n1+33?\n\nAnswer: on its own"}
    ],
    "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
    "extra_info": {"index": "0-1"},
}
"""A row in the format of DAPO-Math-17k and of verl's data sets."""


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_rows_of_chat_messages_are_problems(tmp_path: Path, suffix: str) -> None:
    (problem,) = read_problems(write(tmp_path / f"p{suffix}", [DAPO]))
    assert (
        problem.text.startswith("Solve it") and "1+33?" in problem.text and problem.answer == "34"
    )
    assert problem.meta == {"data_source": "math_dapo", "extra_info": '{"index": "0-1"}'}


def test_rows_of_chat_messages_in_a_data_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    write(tmp_path / "p.parquet", [DAPO])
    frame = pandas.read_parquet(tmp_path / "p.parquet")
    assert type(frame["prompt"][0]).__name__ == "ndarray"
    in_rows = [read_problem(row) for row in frame.to_dict("records")]
    as_given = [
        read_problem(convert_to_row(item, "row 1"))
        for item in iterate_given_rows(frame, "problems")
    ]
    assert in_rows == as_given == list(read_problems(str(tmp_path / "p.parquet")))


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (
            [{"role": "system", "content": "Be brief."}, *DAPO["prompt"]],
            "has a system message, whi",
        ),
        (
            [*DAPO["prompt"], {"role": "assistant", "content": "34"}],
            "has the roles user, assistant",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], "must be a string, is a list"),
        ([{"role": "user"}], "is empty"),
        ([{"role": ["user"]}, 5], "one message with the role user; has the roles"),
        ([], "has the roles none"),
    ],
)
def test_other_messages_are_left_out(messages: object, message: str) -> None:
    reject = read_problem({**DAPO, "prompt": messages})
    assert isinstance(reject, RejectReason) and message in reject.detail


def test_gsm8k_and_math_golds(public_data: Path) -> None:
    gsm8k = list(read_problems(str(public_data / "gsm8k_test.jsonl")))
    assert (len(gsm8k), gsm8k[0].answer) == (1319, "18")
    math = list(read_problems(make_reader_settings(str(public_data / "math500.jsonl"), limit=3)))
    assert math[0].answer == r"\left( 3, \frac{\pi}{2} \right)"
    assert math[0].meta["subject"] == "Precalculus"


def test_a_local_hugging_face_data_set(tmp_path: Path) -> None:
    write(tmp_path / "data.jsonl", ROWS)
    problems = read_problems(make_reader_settings(f"hf:{tmp_path}", split="train"))
    assert [p.answer for p in problems] == ["2", "4"]


def test_limit_and_repeated_rows(tmp_path: Path) -> None:
    more = {"problem": "3+3?", "answer": "6", "level": 1}
    path = write(tmp_path / "p.jsonl", [*ROWS, *ROWS, more, ROWS[0]])
    for limit, answers in [(None, "246"), (9, "246"), (3, "246"), (2, "24"), (1, "2")]:
        problems = read_problems(make_reader_settings(path, limit=limit))
        assert len(problems) == len(answers)
        for _ in range(2):  # the problems can be iterated more than once
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
            r"line 2: id 'a' already names an earlier problem",
        ),
        ([], "holds no problems"),
        ([[1]], "line 1: must be an object"),
    ],
)
def test_bad_rows_name_their_place(tmp_path: Path, rows: list, fault: str) -> None:  # type: ignore[type-arg]
    path = write(tmp_path / "p.jsonl", rows)
    with pytest.raises(DataError, match=fault):
        read_problems(path, strict=True)


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("x.txt", b"x", r"must be \.jsonl"),
        ("x.jsonl", b'{"problem": "\xff"}', "line 1: not valid JSON"),
        ("x.parquet", b"PAR1", "not a readable Parquet file"),
        ("latin.jsonl", '{"problem": "Zoë?"}'.encode("latin-1"), "not UTF-8.*iconv -f ENCODING -t"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, fault: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=fault):
        read_problems(str(tmp_path / name))


@pytest.mark.parametrize(
    ("source", "fault"), [("none.jsonl", "no such file"), ("hf:nowhere", "cannot load split")]
)
def test_sources_that_are_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=fault):
        read_problems(source)


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
            {"problem_id": "b", "steps": ["ends by itself\n", "last"]},
        ],
    )
    solutions = read_solutions(path, PROBLEMS, strict=True).by_problem
    assert [s.text for s in solutions["a"]] == ["one\ntwo", "again"]
    assert solutions["b"][0].text == "first\nstill first\nsecond"
    assert solutions["b"][0].step_ends == (18, 24)
    assert solutions["b"][1].text == "ends by itself\nlast"


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([{"problem_id": "z", "solution": "s"}], "line 1: answers no known problem"),
        (
            [{"problem_id": "a", "problem": "2+2?", "solution": "s"}],
            "line 1: problem_id='a' has another text in problems.source",
        ),
        ([{"problem_id": "a", "steps": []}], "line 1: steps must be a list of strings"),
        ([{"problem_id": "a", "solution": " "}], "line 1: needs a solution"),
        ([{"problem_id": "a", "solution": "s"}], "s.jsonl: no solution for problem 'b'"),
    ],
)
def test_bad_solutions(tmp_path: Path, rows: list, fault: str) -> None:  # type: ignore[type-arg]
    with pytest.raises(DataError, match=fault):
        read_solutions(write(tmp_path / "s.jsonl", rows), PROBLEMS, strict=True)


BAD_LINES = [
    b'{"id": "a", "problem": "1+1?", "answer": "2"}',
    b'{"problem": "cut off',
    b"",
    b'{"problem": "\xff\xfe", "answer": "2"}',
    b'{"id": "s", "problem": "\\ud800", "answer": "2"}',
    b"[1, 2]",
    b"7",
    b'{"id": 5, "problem": "no gold?"}',
    b'{"problem": "an empty gold?", "answer": " "}',
    b'{"answer": "2"}',
    b'{"problem": ["a", "list"], "answer": "2"}',
    b'{"problem": "a list?", "answer": [NaN]}',
    b'{"id": "a", "problem": "1+1?", "answer": "2"}',
    b'{"id": "a", "problem": "another", "answer": "2"}',
    b'{"problem": "' + b"x" * 5000 + b'", "answer": {"value": ' + b"9" * 5000 + b"}}",
    b'{"problem": "2+2?", "answer": 4}',
    b'{"problem": "2+2?", "answer": "4"}',
]
BAD_ROWS = [
    (2, None, "not_json"),
    (4, None, "not_utf8"),
    (5, "s", "not_utf8"),
    (6, None, "not_an_object"),
    (7, None, "not_an_object"),
    (8, "5", "no_column"),
    (9, None, "no_gold"),
    (10, None, "no_column"),
    (11, None, "wrong_type"),
    (12, None, "no_gold"),
    (13, "a", "duplicate"),
    (14, "a", "id_taken"),
    (15, None, "not_json"),
]


def test_rows_that_cannot_be_used_are_left_out_with_their_reasons(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\n".join(BAD_LINES))
    problems = read_problems(str(path))
    assert [p.text for p in problems] == [p.text for p in problems] == ["1+1?", "2+2?"]
    rejects = list(problems.rejects())
    reported = [(r.row, r.problem_id, r.reason) for r in rejects]
    expected = [*BAD_ROWS, (17, list(problems)[1].id, "duplicate")]
    assert reported == expected and problems.num_rejected == len(expected) == 14
    assert all(r.source == str(path) and len(str(r.content())) < 2000 for r in rejects)
    # Rows after the last problem that is taken are not read.
    for limit, count in [(1, 0), (2, 13), (3, 14)]:
        few = read_problems(make_reader_settings(str(path), limit=limit))
        assert len(few) == min(limit, 2) == len(list(few))
        assert len(list(few.rejects())) == few.num_rejected == count
    with pytest.raises(DataError, match=r"p\.jsonl, line 2: not valid JSON"):
        read_problems(str(path), strict=True)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("NaN", "no_gold"),
        ('"nan"', "no_gold"),
        ('" NaN "', "no_gold"),
        ("null", "no_gold"),
        ("Infinity", "wrong_type"),
        ("-Infinity", "wrong_type"),
        ("1e999", "wrong_type"),
        ("true", "wrong_type"),
        ("false", "wrong_type"),
        ("[NaN]", "no_gold"),
        ('{"value": NaN}', "wrong_type"),
        ("[]", "no_gold"),
        ("{}", "no_gold"),
    ],
)
def test_values_that_are_no_gold(tmp_path: Path, answer: str, reason: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        f'{{"problem": "x?", "answer": {answer}}}\n{{"problem": "y?", "answer": 2.5}}\n'
        '{"problem": "z?", "answer": 7}\n{"problem": "w?", "answer": "\\\\infty"}\n'
    )
    problems = read_problems(str(path))
    assert [p.answer for p in problems] == ["2.5", "7", "\\infty"]
    (reject,) = problems.rejects()
    assert (reject.row, reject.reason) == (1, reason)
    with pytest.raises(DataError, match="line 1: the answer in column 'answer'"):
        read_problems(str(path), strict=True)


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_a_gold_may_be_an_object_or_a_list(tmp_path: Path, suffix: str) -> None:
    golds: list[object] = [{"tests": ["1 -> 2"], "limit": 3}, {"tests": ["é"], "limit": None}]
    rows = [{"problem": f"{i}?", "answer": gold} for i, gold in enumerate(golds)]
    problems = list(read_problems(write(tmp_path / f"p{suffix}", rows)))
    assert [problem.gold for problem in problems] == golds
    assert problems[0].answer == '{"limit": 3, "tests": ["1 -> 2"]}'
    assert len({problem.id for problem in problems}) == 2
    (text,) = read_problems(write(tmp_path / "t.jsonl", [{"problem": "?", "answer": "[1]"}]))
    assert text.gold == "[1]" and not text.answer_is_json


def test_what_is_missing_in_a_table_is_no_text(tmp_path: Path) -> None:
    """Golds and ids are floats, as pandas writes a column with gaps."""
    columns = {"id": [1.0, nan, nan], "problem": ["x?", "y?", "z?"], "answer": [nan, 2.0, 3.0]}
    pq.write_table(pa.table(columns), tmp_path / "p.parquet")
    problems = read_problems(str(tmp_path / "p.parquet"))
    assert [(p.text, p.answer) for p in problems] == [("y?", "2.0"), ("z?", "3.0")]
    assert [(r.row, r.reason) for r in problems.rejects()] == [(1, "no_gold")]


def test_rows_with_several_solutions_to_one_problem_are_no_rejects(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", [*ROWS, *ROWS])
    problems = read_problems(path, may_repeat=True, strict=True)
    assert len(problems) == 2 and problems.num_rejected == 0 and not list(problems.rejects())
    with pytest.raises(DataError, match=r"line 3: repeats problem"):
        read_problems(path, strict=True)


def test_bad_bytes_in_csv_and_parquet_concern_their_row_alone(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_bytes(b"problem,answer\n1+1?,2\n\xff?,3\n2+2?,4\nno gold\n")
    problems = read_problems(str(tmp_path / "p.csv"))
    assert [p.answer for p in problems] == ["2", "4"]
    assert [(r.row, r.reason) for r in problems.rejects()] == [(2, "not_utf8"), (4, "no_gold")]
    raw = pa.array([b"1+1?", b"\xff\xfe", b"2+2?"], pa.binary())
    texts = pa.StringArray.from_buffers(3, *raw.buffers()[1:])
    pq.write_table(pa.table({"problem": texts, "answer": ["2", "3", "4"]}), tmp_path / "p.parquet")
    problems = read_problems(str(tmp_path / "p.parquet"))
    assert [p.answer for p in problems] == ["2", "4"]
    assert [(r.row, r.reason) for r in problems.rejects()] == [(2, "not_utf8")]


def test_solutions_that_cannot_be_used_are_left_out(tmp_path: Path) -> None:
    rows = [
        {"problem_id": "a", "solution": "one\ntwo"},
        {"problem_id": "z", "solution": "s"},
        {"problem_id": "a", "steps": []},
    ]
    solutions = read_solutions(write(tmp_path / "s.jsonl", rows), PROBLEMS)
    assert list(solutions.by_problem) == ["a"] and len(solutions.by_problem["a"]) == 1
    assert [(r.problem_id, r.row, r.reason) for r in solutions.rejects] == [
        ("z", 2, "unknown_problem"),
        ("a", 3, "bad_solution"),
        ("b", None, "no_solution"),
    ]
    assert isinstance(solutions.rejects[0], Reject)
    with pytest.raises(DataError, match=r"no solution for any of 2 problems; answers no known"):
        read_solutions(write(tmp_path / "t.jsonl", rows[1:2]), PROBLEMS)


@pytest.mark.parametrize(
    ("row", "gold"),
    [
        (
            {"task_id": "HumanEval/0", "prompt": "def f():", "entry_point": "f", "test": "check"},
            {"test": "check", "entry_point": "f", "prompt": "def f():"},
        ),
        (
            {"task_id": 3, "text": "Write f.", "test_list": ["assert f() == 1"], "code": "f = 1"},
            {"test_list": ["assert f() == 1"], "code": "f = 1"},
        ),
        (
            {"problem": "Write f.", "test_list": ["assert f() == 1"]},
            {"test_list": ["assert f() == 1"]},
        ),
        ({"question": "Add.", "input_output": '{"inputs": []}'}, '{"inputs": []}'),
        ({"question": "Add.", "input_output": '{"inputs": []}', "answer": "5"}, "5"),
    ],
)
def test_columns_of_tests_are_a_gold_where_there_is_no_answer(
    tmp_path: Path, row: dict[str, object], gold: object
) -> None:
    (problem,) = read_problems(write(tmp_path / "p.jsonl", [row]))
    assert problem.gold == gold
    assert problem.id == str(row.get("task_id", problem.id))
    assert not {"test", "test_list", "code"} & problem.meta.keys()


@pytest.mark.parametrize(
    ("row", "text", "is_separated"),
    [
        ({"steps": ["a", "b", "c"]}, "a\nb\nc", True),
        ({"steps": ["a\n", "b\n", "c"]}, "a\nb\nc", False),
        ({"steps": ["It is 2. ", "So 2."]}, "It is 2. So 2.", False),
        ({"steps": ["a", "\n\nb"]}, "a\n\nb", False),
        ({"steps": ["a\n", "b", "c"]}, "a\n\nb\nc", True),
        ({"steps": ["1+", "1"], "solution": "1+1"}, "1+1", False),
        ({"steps": ["a", "b"], "solution": "another one"}, "a\nb", True),
        ({"steps": ["a", "b"], "step_separator": ""}, "ab", False),
        ({"steps": ["a\n", "b"], "step_separator": "\n"}, "a\n\nb", False),
        ({"steps": ["a"]}, "a", False),
    ],
)
def test_steps_are_joined_as_they_are_or_by_a_separator_that_is_said(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    row: dict[str, Any],
    text: str,
    is_separated: bool,
) -> None:
    path = tmp_path / "given.jsonl"
    path.write_text(json.dumps({"problem_id": "a", "problem": "P", **row}) + "\n")
    solutions = read_solutions(str(path), [Problem(id="a", text="P", answer="1")])
    ((solution,),) = solutions.by_problem.values()
    assert (solution.text, solution.is_separated) == (text, is_separated)
    assert ("a line break was put between the steps of 1 solutions" in caplog.text) == is_separated
    (item,) = Solutions(lambda: read_file_items(str(path)), source=str(path))
    assert "".join(item.steps) == text and caplog.text.count("was put between") == 2 * is_separated


@pytest.mark.parametrize(
    ("answer", "is_refused"), [("E", True), ("(E)", True), ("D", False), ("7", False)]
)
def test_a_gold_letter_is_an_option_of_its_problem(answer: str, *, is_refused: bool) -> None:
    read = read_problem({"problem": "Which?\n(A) 1 (B) 2 (C) 3 (D) 4", "answer": answer})
    refused = isinstance(read, RejectReason) and read.reason == "no_such_option"
    assert refused == is_refused and (not refused or "A to D" in read.detail)
    assert isinstance(read_problem({"problem": "Which letter comes next?", "answer": "E"}), Problem)
