"""Rows with tests as public data sets have them: right programs pass, wrong ones do not."""

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
from mclabel.core.errors import RejectReason
from mclabel.core.records import Problem
from mclabel.data.readers.problem_rows import problem_in
from tests.support.code_checks import code_checker

ROWS = [json.loads(line) for line in Path(__file__).with_name("code_rows.jsonl").open()]
WITHOUT = {"HumanEval+ row": "numpy", "APPS row without tests": "has no tests"}
"""Rows whose tests cannot run, with a word of the message."""


def test_each_layout_is_read_and_its_programs_have_their_verdicts() -> None:
    checker = code_checker(time_s=2)
    assert len(ROWS) >= 15
    for case in ROWS:
        problem = problem_in(case["row"])
        if case["name"] in WITHOUT:
            found = problem if isinstance(problem, RejectReason) else None
            said = found.detail if found is not None else asyncio.run(checker.refuse(problem))
            assert WITHOUT[case["name"]] in said
            continue
        assert isinstance(problem, Problem), (case["name"], problem)
        assert problem.text and asyncio.run(checker.refuse(problem)) is None
        items = [GradeItem(problem=problem, completion=case[key]) for key in ("right", "wrong")]
        found = [one.verdict.value for one in asyncio.run(checker.grade(items))]
        assert found == ["right", "wrong"], case["name"]


def _packed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


class Hostile:
    def __reduce__(self) -> Any:
        return os.abort, ()


@pytest.mark.parametrize(
    ("row", "word"),
    [
        ({"official_tests": [{"input": "1", "output": "2"}], "input_mode": "file"}, "input_mode"),
        ({"official_tests": [{"input": "1"}], "prompt": "?"}, "input and output"),
        ({"official_tests": [], "generated_checker": "x", "prompt": "?"}, "generated_checker"),
        ({"verification_info": '{"language": "cpp", "test_cases": []}', "prompt": "?"}, "'cpp'"),
        ({"verification_info": "{", "prompt": "?"}, "cannot be read"),
        ({"public_test_cases": "[]", "private_test_cases": _packed(Hostile())}, "abort"),
        ({"public_test_cases": "[]", "private_test_cases": _packed("[" + " " * (1 << 25))}, "than"),
        ({"public_test_cases": "[]", "private_test_cases": "?"}, "no packed text"),
        ({"test_cases": ["assert f(1) == 1"], "question": " "}, "no text"),
    ],
)
def test_what_cannot_be_read_says_why(row: dict[str, Any], word: str) -> None:
    found = problem_in(row)
    assert isinstance(found, RejectReason) and word in found.detail
