"""Readers: the choice by source, custom readers, rows with tests, and judged data sets."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest

from mclabel.checkers import GradeItem
from mclabel.core.config.load import load_config
from mclabel.core.errors import ConfigError, DataError, RejectReason
from mclabel.core.records import Problem
from mclabel.data.readers.base import find_reader_name, make_reader_settings
from mclabel.data.readers.judged import read_prm800k, read_processbench
from mclabel.data.readers.problem_rows import read_problem
from mclabel.data.readers.problems import read_problems
from mclabel.data.readers.solutions import RowRejects
from mclabel.labeling.config import LabelConfig
from tests.support.code_checks import code_checker
from tests.support.own_package import write_module
from tests.support.scripted_jobs import write_config

MINE = '''
from mclabel.data.readers.base import ReaderSettings, RowSettings
from mclabel.core.errors import RejectReason
from mclabel.core.records import Problem


def countdown(place):
    """Rows of a function: the numbers below the one in `place`."""
    for number in range(int(place or 3)):
        yield {"question": f"Say {number} [answer {number}]", "gold": number, "level": "easy"}


class Squares:
    """Squares, one of which cannot be read."""

    class Settings(ReaderSettings):
        """How many."""

        source: str = "squares"
        first: int = 1
        """The first number."""

    def __init__(self, settings):
        self.settings = settings

    def rows(self):
        for row in range(1, 6):
            number = self.settings.first + row - 1
            if row == 2:
                yield row, RejectReason("torn", "the page is torn")
            else:
                yield row, Problem(
                    id=f"s{number}", text=f"Square {number} [answer {number**2}]",
                    answer=str(number**2),
                )


NO_READER = 3
'''


@pytest.fixture
def reader_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of an importable package that defines its own readers."""
    return write_module(tmp_path, MINE, monkeypatch)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("arith", "arith"),
        ("hf:openai/gsm8k", "hf"),
        ("hf://datasets/x", "hf"),
        ("problems.jsonl", "file"),
        ("s3://bucket/problems.parquet", "file"),
        ("folder/problems", "file"),
        ("problems.txt", "file"),
        ("my_package.mine:Reader", "my_package.mine:Reader"),
        ("my_package.mine:Reader:/a/place", "my_package.mine:Reader"),
        ("C:/problems.jsonl", "file"),
    ],
)
def test_the_reader_of_a_source(source: str, name: str) -> None:
    assert find_reader_name(source) == name


@pytest.mark.parametrize(("source", "name"), [("exams:finals", "exams"), ("finals.zzz", "zzz")])
def test_the_reader_of_another_package(
    monkeypatch: pytest.MonkeyPatch, source: str, name: str
) -> None:
    monkeypatch.setattr("mclabel.data.readers.base.list_component_names", lambda _: [name])
    assert find_reader_name(source) == name


def test_a_source_that_is_no_file_names_the_nearest_reader() -> None:
    with pytest.raises(
        ConfigError, match=r"arit: is not among the readers. did you mean arith\? Choose"
    ):
        find_reader_name("arit")


def test_a_key_of_another_reader_is_an_error_that_names_it(tmp_path: Path) -> None:
    overrides = ["out=x", "problems.source=x.jsonl", "problems.families=[trading]"]
    with pytest.raises(
        ConfigError, match=r"problems\.families: not a setting of kind=file"
    ) as raised:
        load_config(LabelConfig, write_config(tmp_path), overrides)
    assert "problem_column" in str(raised.value)
    with pytest.raises(ConfigError, match=r"did you mean problems\.problem_column"):
        load_config(LabelConfig, None, ["out=x", "problems.source=a.csv", "problems.problem_col=q"])


@pytest.mark.parametrize(
    ("override", "fault"),
    [
        ("problems.split=dev", "problems.split='dev': must be 'train', 'validation'"),
        ("problems.families=[sailing]", r"families=\['sailing'\]: must be among trading"),
        ("problems.num_steps=[6,11]", r"num_steps\.1=11: must be at most 10"),
        ("problems.num_steps=[4,3]", r"the first no larger than the second"),
        ("problems.limit=2000000", "must be at most 1,000,000, not 2,000,000"),
        ("problems.kind=3", "problems: kind must be a name, is 3"),
        ("problems.source=4", "problems.source=4: must be a string, is a number"),
        ("problems.kind=json:dumper", "json:dumper: cannot be imported"),
    ],
)
def test_faults_of_a_source_are_found_when_the_configuration_is_read(
    override: str, fault: str
) -> None:
    with pytest.raises(ConfigError, match=fault):
        load_config(LabelConfig, None, ["out=x", override])


def test_held_out_families_are_no_training_problems() -> None:
    with pytest.raises(
        ConfigError, match=r"families=\['gifts'\]: these families are held out of training"
    ):
        make_reader_settings("arith", split="train", families=["gifts"], limit=1)


@pytest.mark.parametrize("source", ["arith", "pyarith"])
def test_longer_problems_can_be_asked_for(source: str) -> None:
    problems = read_problems(make_reader_settings(source, limit=5, num_steps=(9, 10)))
    assert {problem.meta["num_steps"] for problem in problems} <= {"9", "10"}


def test_arith_needs_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"problems\.limit: required for problems\.source=arith"):
        read_problems("arith")
    assert len(read_problems(make_reader_settings("arith", limit=5))) == 5


def test_a_class_of_ones_own_has_settings_and_faults(reader_package: str) -> None:
    problems = read_problems(make_reader_settings(f"{reader_package}:Squares", first=4))
    assert [problem.answer for problem in problems] == ["16", "36", "49", "64"]
    (reject,) = problems.rejects()
    assert (reject.row, reject.reason, reject.detail) == (2, "torn", "the page is torn")
    with pytest.raises(DataError, match="row 2: the page is torn"):
        read_problems(make_reader_settings(f"{reader_package}:Squares"), strict=True)
    with pytest.raises(ConfigError, match="not_there"):
        make_reader_settings(f"{reader_package}:Squares", not_there=1)


def test_what_is_no_reader_is_refused(reader_package: str) -> None:
    with pytest.raises(ConfigError, match=r"its attribute Settings is None, must be a class"):
        make_reader_settings(f"{reader_package}:NO_READER")


ROWS = [json.loads(line) for line in Path(__file__).with_name("code_rows.jsonl").open()]
WITHOUT = {"HumanEval+ row": "numpy", "APPS row without tests": "has no tests"}
"""Rows whose tests cannot run, with a word from the message."""


def test_each_layout_is_read_and_its_programs_have_their_verdicts() -> None:
    checker = code_checker(time_s=2)
    assert len(ROWS) >= 15
    for case in ROWS:
        problem = read_problem(case["row"])
        if case["name"] in WITHOUT:
            reject = problem if isinstance(problem, RejectReason) else None
            message = reject.detail if reject is not None else asyncio.run(checker.refuse(problem))
            assert WITHOUT[case["name"]] in message
            continue
        assert isinstance(problem, Problem), (case["name"], problem)
        assert problem.text and asyncio.run(checker.refuse(problem)) is None
        items = [GradeItem(problem=problem, completion=case[key]) for key in ("right", "wrong")]
        reject = [grade.verdict.value for grade in asyncio.run(checker.grade(items))]
        assert reject == ["right", "wrong"], case["name"]


def _pack_value(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


class Hostile:
    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"official_tests": [{"input": "1", "output": "2"}], "input_mode": "file"}, "input_mode"),
        ({"official_tests": [{"input": "1"}], "prompt": "?"}, "`input` and `output`"),
        ({"official_tests": [], "generated_checker": "x", "prompt": "?"}, "generated_checker"),
        ({"verification_info": '{"language": "cpp", "test_cases": []}', "prompt": "?"}, "'cpp'"),
        ({"verification_info": "{", "prompt": "?"}, "cannot be read"),
        ({"public_test_cases": "[]", "private_test_cases": _pack_value(Hostile())}, "abort"),
        (
            {"public_test_cases": "[]", "private_test_cases": _pack_value("[" + " " * (1 << 25))},
            "than",
        ),
        ({"public_test_cases": "[]", "private_test_cases": "?"}, "cannot be unpacked"),
        ({"test_cases": ["assert f(1) == 1"], "question": " "}, "no text"),
    ],
)
def test_what_cannot_be_read_says_why(row: dict[str, Any], word: str) -> None:
    reject = read_problem(row)
    assert isinstance(reject, RejectReason) and word in reject.detail


ROW = {"id": "x-0", "generator": "g", "problem": "2+2?", "steps": ["a", "b"], "label": 1}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rating(text: str, value: int | None) -> dict[str, Any]:
    return {"text": text, "rating": value, "flagged": False}


def prm800k_row(
    steps: list[dict[str, Any]],
    *,
    generated_steps: list[str] | None = None,
    finish: str = "solution",
    control: bool = False,
) -> dict[str, Any]:
    """Return a row of PRM800K."""
    question: dict[str, Any] = {"problem": "2+2?", "ground_truth_answer": "4"}
    if generated_steps is not None:
        question |= {"pre_generated_steps": generated_steps, "pre_generated_answer": "5"}
    return {
        "labeler": "l",
        "timestamp": "t",
        "generation": 1,
        "is_quality_control_question": control,
        "is_initial_screening_question": False,
        "question": question,
        "label": {"steps": steps, "total_time": 1, "finish_reason": finish},
    }


def judgement(
    completions: list[dict[str, Any]] | None, chosen: int | None = None, human: Any = None
) -> dict[str, Any]:
    return {"completions": completions, "human_completion": human, "chosen_completion": chosen}


def test_processbench(tmp_path: Path) -> None:
    rows = [ROW | {"final_answer_correct": False}, ROW | {"id": "x-1", "label": -1}]
    wrong, sound = read_processbench(write(tmp_path / "pb.jsonl", rows))
    assert (wrong.id, wrong.steps, wrong.first_error) == ("x-0", ("a", "b"), 1)
    assert wrong.answer_right is False
    assert sound.first_error is None and sound.answer_right is None
    (tmp_path / "pb.json").write_text(json.dumps(rows))  # an array, as in the data set's own files
    assert read_processbench(tmp_path / "pb.json") == [wrong, sound]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [ROW, ROW | {"id": "y", "label": 2}],
            r"pb.jsonl, line 2: label=2: must be a whole number in -1..1",
        ),
        ([ROW | {"label": True}], r"line 1: label=True: must be"),
        ([ROW | {"label": 0.5}], r"line 1: label=0.5: must be"),
        ([ROW | {"also": 1}], r"line 1: also=1: must be a list of further accepted labels"),
        ([ROW | {"also": [2]}], r"line 1: label=2: must be"),
        ([ROW | {"label": "N/A"}], r"line 1: label='N/A': must be"),
        ([ROW | {"final_answer_correct": "x"}], r"line 1: final_answer_correct='x': must be true"),
        ([ROW | {"steps": "a"}], r"line 1: steps: must be a list of strings"),
        ([ROW | {"steps": []}], r"line 1: steps: must be a list of strings"),
        ([ROW | {"problem": " "}], r"line 1: problem=' ': must be a string"),
        ([ROW, ROW], r"line 2: id 'x-0' already occurs in an earlier row"),
        (
            [{"question": "q", "answer": "a"}],
            r"line 1: not a row of ProcessBench: it needs id, .*has",
        ),
        (["text"], "line 1: must be an object, is a str"),
        ([], r"pb.jsonl: holds no rows"),
    ],
)
def test_what_is_no_processbench(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_processbench(write(tmp_path / "pb.jsonl", rows))


def test_labels_of_other_tools_and_rows_that_are_left_out(tmp_path: Path) -> None:
    rows = [
        ROW | {"label": 1.0, "final_answer_correct": 0.0},
        ROW | {"id": "x-1", "label": " -1 ", "final_answer_correct": "False"},
        ROW | {"id": "x-2", "label": "0.0", "final_answer_correct": None},
        ROW | {"id": "x-3", "label": None},
        ROW,
    ]
    left_out = RowRejects("pb")
    solutions = read_processbench(write(tmp_path / "pb.jsonl", rows), left_out)
    assert [
        (solution.id, solution.first_error, solution.answer_right) for solution in solutions
    ] == [
        ("x-0", 1, False),
        ("x-1", None, False),
        ("x-2", 0, None),
    ]
    assert [(reject.row, reject.reason) for reject in left_out.found] == [
        (4, "bad_label"),
        (5, "id_taken"),
    ]


def test_the_real_splits(public_data: Path) -> None:
    for name, (num_wrong, num_right) in {"gsm8k": (207, 193), "math": (594, 406)}.items():
        rows = read_processbench(public_data / f"processbench_{name}.jsonl")
        wrong = sum(row.first_error is not None for row in rows)
        assert (wrong, len(rows) - wrong) == (num_wrong, num_right)


def test_prm800k_of_whole_solutions(tmp_path: Path) -> None:
    steps = ["one", "two", "three"]
    good, bad, neutral = (
        [judgement([rating(text, value)], 0) for text, value in zip(steps, ratings, strict=False)]
        for ratings in ((1, 1, 1), (1, -1), (1, 0, 0))
    )
    rows = [
        prm800k_row(good, generated_steps=steps),
        prm800k_row(bad, generated_steps=steps, finish="found_error"),
        prm800k_row(neutral, generated_steps=steps),
        # steps after giving up have no known rating
        prm800k_row(good[:2], generated_steps=steps, finish="give_up"),
        prm800k_row([judgement([rating("one", None)])], generated_steps=steps),
        prm800k_row(bad, generated_steps=steps, control=True),
    ]
    solutions = read_prm800k(write(tmp_path / "prm.jsonl", rows))
    assert [solution.steps for solution in solutions] == [tuple(steps)] * 3
    assert [solution.first_error for solution in solutions] == [None, 1, None]
    assert {solution.problem for solution in solutions} == {"2+2?"}


def test_prm800k_of_chosen_steps(tmp_path: Path) -> None:
    rows = [
        prm800k_row(
            [
                judgement([rating("wrong", -1), rating("one", 1)], 1),
                judgement([rating("bad", -1), rating("worse", -1), rating("ok", 0)], 2),
            ]
        ),
        prm800k_row(
            [
                judgement([rating("one", 1)], 0),
                judgement([rating("no", -1)], None, {"text": "by hand", "rating": None}),
                judgement([rating("bad", -1), rating("worse", -1), rating("?", None)]),
            ],
            finish="found_error",
        ),
    ]
    solutions = read_prm800k(write(tmp_path / "prm.jsonl", rows))
    assert [(solution.steps, solution.first_error) for solution in solutions] == [
        (("one", "ok"), None),
        (("one", "by hand", "bad"), 2),
        (("one", "by hand", "worse"), 2),
    ]
    assert len({solution.id for solution in solutions}) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([ROW], "prm.jsonl, line 1: not a row of PRM800K .*is_quality_control_question"),
        ([prm800k_row([{}])], "line 1: not a row of PRM800K .*completions"),
        ([prm800k_row([judgement([rating("a", 1)], 5)])], "line 1: not a row of PRM800K"),
        (["text"], "line 1: must be an object, is a str"),
    ],
)
def test_what_is_no_prm800k(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_prm800k(write(tmp_path / "prm.jsonl", rows))
