"""A program is right only if it computes the requested result."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from mclabel.checkers.code.checker import CodeChecker
from mclabel.core.records import Verdict
from tests.support.code_cheats import CHEATS, GOLD, KILLS_ITSELF
from tests.support.code_checks import code_checker, grades


@pytest.fixture(scope="module")
def checker() -> Iterator[CodeChecker]:
    yield code_checker(time_s=1)


def test_what_is_right_is_right(checker: CodeChecker) -> None:
    right = "def add(a, b):\n    return a + b\n"
    graded = grades(
        checker, GOLD, [right, f"Here:\n```python\n{right}```\nDone.", "    return a + b\n"]
    )
    assert [(grade.verdict, grade.reason, grade.layer) for grade in graded] == 3 * [
        (Verdict.RIGHT, "passed", "split")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True], ids=["split", "inside"])
def test_no_cheat_is_right(checker: CodeChecker, inside: bool) -> None:
    """Cheats may pass inside the solution's process, so only self-ending cheats are tried there."""
    cheats = {**CHEATS, **KILLS_ITSELF}
    if inside:
        cheats = {name: cheats[name] for name in ("exit 0", "os._exit", "prints", "memory", "loop")}
    graded = grades(checker, {**GOLD, "inside": inside}, list(cheats.values()))
    shown = {
        name: (grade.verdict.name, grade.reason) for name, grade in zip(cheats, graded, strict=True)
    }
    assert {name: outcome for name, outcome in shown.items() if outcome[0] != "WRONG"} == {}
    assert grades(checker, GOLD, ["def add(a, b): return a + b"])[0].verdict is Verdict.RIGHT


def test_reasons_say_what_happened(checker: CodeChecker) -> None:
    names = ["opaque", "exit 0", "os._exit", "syntax", "nothing", "constant", "output"]
    graded = grades(checker, GOLD, [CHEATS[name] for name in names])
    assert [grade.reason for grade in graded] == [
        "test_failed:0", "raised:SystemExit", "exited", "syntax_error", "no_code",
        "test_failed:1", "output",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_forged_result_is_right_and_honest_ones_are(checker: CodeChecker) -> None:
    """Some programs forge results by return values, exceptions or objects of the tests."""
    rows = [json.loads(line) for line in Path(__file__).with_name("forgers.jsonl").open()]
    grade_by_name = {row["name"]: grades(checker, row["gold"], [row["program"]])[0] for row in rows}
    honest = {row["name"] for row in rows if row["is_honest"]}
    assert len(grade_by_name) == len(rows) >= 80
    assert {
        name for name, grade in grade_by_name.items() if grade.verdict is Verdict.RIGHT
    } == honest
    doubtful = {
        grade.reason for grade in grade_by_name.values() if grade.verdict is Verdict.UNKNOWN
    }
    assert doubtful <= {"own_comparison"}
