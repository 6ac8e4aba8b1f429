"""ProcessBench and PRM800K as people publish them, and what is none of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mclabel.core.errors import DataError
from mclabel.data.readers.judged import read_prm800k, read_processbench
from mclabel.data.readers.solutions import RowRejects

ROW = {"id": "x-0", "generator": "g", "problem": "2+2?", "steps": ["a", "b"], "label": 1}


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rating(text: str, value: int | None) -> dict[str, Any]:
    return {"text": text, "rating": value, "flagged": False}


def rated(
    steps: list[dict[str, Any]],
    *,
    given: list[str] | None = None,
    finish: str = "solution",
    control: bool = False,
) -> dict[str, Any]:
    """A row of PRM800K."""
    question: dict[str, Any] = {"problem": "2+2?", "ground_truth_answer": "4"}
    if given is not None:
        question |= {"pre_generated_steps": given, "pre_generated_answer": "5"}
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
    (tmp_path / "pb.json").write_text(json.dumps(rows))  # as the data set's own files
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
        ([ROW | {"also": 1}], r"line 1: also=1: must be a list of labels"),
        ([ROW | {"also": [2]}], r"line 1: label=2: must be"),
        ([ROW | {"label": "N/A"}], r"line 1: label='N/A': must be"),
        ([ROW | {"final_answer_correct": "x"}], r"line 1: final_answer_correct='x': must be true"),
        ([ROW | {"steps": "a"}], r"line 1: steps: must be a list of texts"),
        ([ROW | {"steps": []}], r"line 1: steps: must be a list of texts"),
        ([ROW | {"problem": " "}], r"line 1: problem=' ': must be a text"),
        ([ROW, ROW], r"line 2: id 'x-0' occurs in an earlier row"),
        ([{"question": "q", "answer": "a"}], r"line 1: not a row of ProcessBench: needs id, .*has"),
        (["text"], "line 1: must be an object, is a str"),
        ([], r"pb.jsonl: an empty split: holds no rows"),
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
    found = read_processbench(write(tmp_path / "pb.jsonl", rows), left_out)
    assert [(one.id, one.first_error, one.answer_right) for one in found] == [
        ("x-0", 1, False),
        ("x-1", None, False),
        ("x-2", 0, None),
    ]
    assert [(one.row, one.reason) for one in left_out.found] == [(4, "bad_label"), (5, "id_taken")]


def test_the_real_splits(public_data: Path) -> None:
    sizes = {"gsm8k": (207, 193), "math": (594, 406)}
    for name, (num_wrong, num_right) in sizes.items():
        rows = read_processbench(public_data / f"processbench_{name}.jsonl")
        wrong = sum(row.first_error is not None for row in rows)
        assert (wrong, len(rows) - wrong) == (num_wrong, num_right)


def test_prm800k_of_whole_solutions(tmp_path: Path) -> None:
    given = ["one", "two", "three"]
    good, bad, neutral = (
        [judgement([rating(text, value)], 0) for text, value in zip(given, ratings, strict=False)]
        for ratings in ((1, 1, 1), (1, -1), (1, 0, 0))
    )
    rows = [
        rated(good, given=given),
        rated(bad, given=given, finish="found_error"),
        rated(neutral, given=given),
        rated(good[:2], given=given, finish="give_up"),  # what comes then is not known
        rated([judgement([rating("one", None)])], given=given),
        rated(bad, given=given, control=True),
    ]
    found = read_prm800k(write(tmp_path / "prm.jsonl", rows))
    assert [one.steps for one in found] == [tuple(given)] * 3
    assert [one.first_error for one in found] == [None, 1, None]
    assert {one.problem for one in found} == {"2+2?"}


def test_prm800k_of_chosen_steps(tmp_path: Path) -> None:
    rows = [
        rated(
            [
                judgement([rating("wrong", -1), rating("one", 1)], 1),
                judgement([rating("bad", -1), rating("worse", -1), rating("ok", 0)], 2),
            ]
        ),
        rated(
            [
                judgement([rating("one", 1)], 0),
                judgement([rating("no", -1)], None, {"text": "by hand", "rating": None}),
                judgement([rating("bad", -1), rating("worse", -1), rating("?", None)]),
            ],
            finish="found_error",
        ),
    ]
    found = read_prm800k(write(tmp_path / "prm.jsonl", rows))
    assert [(one.steps, one.first_error) for one in found] == [
        (("one", "ok"), None),
        (("one", "by hand", "bad"), 2),
        (("one", "by hand", "worse"), 2),
    ]
    assert len({one.id for one in found}) == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([ROW], "prm.jsonl, line 1: not a row of PRM800K .*is_quality_control_question"),
        ([rated([{}])], "line 1: not a row of PRM800K .*completions"),
        ([rated([judgement([rating("a", 1)], 5)])], "line 1: not a row of PRM800K"),
        (["text"], "line 1: must be an object, is a str"),
    ],
)
def test_what_is_no_prm800k(tmp_path: Path, rows: list[Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_prm800k(write(tmp_path / "prm.jsonl", rows))
