"""The tables of cases that people judged, and the checker layers that decide the cases."""

from __future__ import annotations

import pytest

from mclabel.answers import Checker, grade
from mclabel.core.records import Verdict
from tests.support.judged import read_cases

RIGHT, WRONG, UNKNOWN = Verdict.RIGHT, Verdict.WRONG, Verdict.UNKNOWN
CASES = list(read_cases("cases.txt"))
TABLES = ("classes.txt", "words.txt", "claims.txt", "languages.txt", "forms.txt")
CLASSES = [case for name in TABLES for case in read_cases(name)]


@pytest.mark.parametrize("kind", dict.fromkeys(case.kind for case in (*CASES, *CLASSES)))
def test_every_case_of_a_kind(kind: str, checker: Checker) -> None:
    cases = [case for case in (*CASES, *CLASSES) if case.kind == kind]
    assert [case for case in cases if not case.agrees(case.grade(checker))] == []


@pytest.mark.parametrize(
    ("answer", "gold", "verdict", "layer"),
    [
        ("x", "x", RIGHT, "text"),
        ("", "1", WRONG, "text"),
        ("1/2", "0.5", RIGHT, "number"),
        ("0.333", "1/3", WRONG, "number"),
        ("1+x", "x+1", RIGHT, "form"),
        ("Friday", "Thursday", WRONG, "form"),
        (r"1-\cos^2 x", r"\sin^2 x", RIGHT, "form"),
        (r"\cos 2x", r"1-2\sin^2 x", RIGHT, "sympy"),
        ("x", "|x|", WRONG, "sympy"),
        (r"\oint n", "1", UNKNOWN, "none"),
        (r"\sum_{n=1}^\infty n", "1", UNKNOWN, "sympy"),
        ("1" * 3000, "2", UNKNOWN, "text"),
        ("1" * 3000, "1" * 3000, RIGHT, "text"),
    ],
)
def test_layers(answer: str, gold: str, verdict: Verdict, layer: str) -> None:
    graded = grade(answer, gold)
    assert (graded.verdict, graded.layer) == (verdict, layer)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("7 or so", "7"),
        ("7 if n is even", "7"),
        ("n = 7 is too small", "7"),
        ("n = 7 is not the smallest", "7"),
        ("7 as n → ∞", "7"),
        ("7 as n -> inf", "7"),
        ("7 for n = 3", "7"),
        ("a_n → 7", "7"),
        ("8 (i.e. 9)", "8"),
        ("30 (thirteen)", "30"),
        ("12 (as 3 * 4)", "12"),
        ("x: 7", "7"),
        ("x: 3, y: 4", "3"),
        ("y: 4, x: 3", "(3, 4)"),
        ("A: 3, B: 4", "3"),
        ("12 pieces of fruit", "12 apples"),
        ("7, approximately", "7"),
        ("the 7th", "7"),
        ("7 (mod 5)", "7"),
        ("7 tenths", "7"),
        (r"\foo{7}", "7"),
        ("y = 3, x = 4", "(3, 4)"),
        ("23 - 5 = 11", "11"),
        ("23 - 5 = 11 apples", "11"),
        (r"23 - 5 \approx 11", "11"),
    ],
)
def test_what_was_not_read_in_full_or_contradicts_itself_is_unknown(answer: str, gold: str) -> None:
    assert grade(answer, gold).verdict is UNKNOWN
