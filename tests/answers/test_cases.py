"""The tables of human-judged cases, and the layers that decide them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mclabel.answers import Checker, grade
from mclabel.records import Verdict
from tests.support.judged import Case, read_cases

RIGHT, WRONG, UNKNOWN = Verdict.RIGHT, Verdict.WRONG, Verdict.UNKNOWN
CASES = list(read_cases("cases.txt"))
CLASSES = list(read_cases("classes.txt"))


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    checker = Checker()
    yield checker
    checker.close()


def test_the_table_is_large_and_balanced() -> None:
    false = sum(not case.right for case in CASES)
    assert len(CASES) >= 500
    assert 0.4 <= false / len(CASES) <= 0.6


@pytest.mark.parametrize(
    "case", [*CASES, *CLASSES], ids=lambda c: f"{c.kind}: {c.gold} ;; {c.answer}"[:90]
)
def test_case(case: Case, checker: Checker) -> None:
    assert case.agrees(case.grade(checker))


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
    found = grade(answer, gold)
    assert (found.verdict, found.layer) == (verdict, layer)
