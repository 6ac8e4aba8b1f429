from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.answers import extract_answer, grade, grade_completion
from mclabel.records import Verdict


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{12}.", "12"),
        (r"\boxed{1} no, \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{7} and then \boxed{8", "7"),
        (r"\fbox{3}", "3"),
        ("text\n#### 18", "18"),
        ("#### 18\n", "18"),
        ("no answer 42", None),
        ("", None),
    ],
)
def test_extract(text: str, answer: str | None) -> None:
    assert extract_answer(text) == answer


RIGHT, WRONG, UNKNOWN = Verdict.RIGHT, Verdict.WRONG, Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("answer", "gold", "verdict"),
    [
        ("12", "12", RIGHT),
        ("12.0", "12", RIGHT),
        ("1,200", "1200", RIGHT),
        ("$12$", "12", RIGHT),
        (r"\frac{2}{4}", "1/2", RIGHT),
        (r"-\dfrac12", r"-\frac{1}{2}", UNKNOWN),
        (r"\tfrac{1}{2}", "0.5", RIGHT),
        ("\u22123", "-3", RIGHT),
        ("x + 1", "x+1", RIGHT),
        (r"\text{east}", "east", RIGHT),
        ("112", "12", WRONG),
        ("0.333", "1/3", WRONG),
        ("1/0", "1", UNKNOWN),
        ("1+x", "x+1", UNKNOWN),
        ("", "1", WRONG),
        ("10000000000000000000001", "10000000000000000000000", WRONG),
    ],
)
def test_grade(answer: str, gold: str, verdict: Verdict) -> None:
    assert grade(answer, gold).verdict is verdict


def test_a_completion_without_an_answer_is_wrong() -> None:
    answer, result = grade_completion("I give up", "3")
    assert answer is None
    assert (result.verdict, result.reason) == (WRONG, "no_answer")


@given(st.text(), st.text())
def test_grade_never_raises_and_is_symmetric_in_equality(a: str, b: str) -> None:
    extract_answer(a + "\\boxed{" + b)
    assert (grade(a, b).verdict is RIGHT) == (grade(b, a).verdict is RIGHT)


@pytest.mark.parametrize(
    "bomb",
    ["9" * 100_000, "{" * 50_000, "\\boxed{" * 5_000, "9^9^9^9", "1/" * 30_000, "\x00\u202e"],
)
def test_bombs_are_no_verdict_or_wrong(bomb: str) -> None:
    extract_answer(bomb)
    assert grade(bomb, "12").verdict is not RIGHT


def test_nothing_is_evaluated(tmp_path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "planted"
    grade(f"__import__('pathlib').Path({str(target)!r}).touch()", "1")
    assert not target.exists()
