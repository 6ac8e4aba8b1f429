"""The rules for comparing answers."""

from __future__ import annotations

import pytest

from mclabel.answers import grade
from mclabel.core.records import Verdict


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("3.14159", "3.14", True),
        (r"\pi", "3.14", True),
        ("0.5", r"50\%", True),
        ("50", r"50\%", True),
        ("90", r"90^\circ", True),
        (r"\frac{\pi}{2}", r"90^\circ", True),
        ("1010", "1010_2", True),
        ("4:30", "4:30 pm", True),
        ("5", "x = 5", True),
        ("1, 2", "(1, 2)", True),
        ("(1, 2)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", True),
        (r"\frac{3}{5}", "3:5", True),
        ("2, 1", "1, 2", True),
        (r"\{2, 1\}", r"\{1, 2\}", True),
        ("3 or 4", "3", False),
        ("2, 1", "x = 1, y = 2", False),
        ("False, True", "True, False", False),
        ("2,74", "2.74", True),
        ("3.46", r"2\sqrt{3} \approx 3.46", True),
        ("1.4142135623730951", r"\sqrt{2}", True),
        ("1.4142135623731", r"\sqrt{2}", False),
        ("555_{10}", "4210_5", False),
        ("x^2 + c", "x^2 + C", True),
        (r"\frac{\pi}{4} + n\pi", r"\frac{\pi}{4} + k\pi", True),
        ("ACB", "ABC", False),
        ("thursday", "Thursday", True),
    ],
)
def test_a_rule_that_nobody_sets(answer: str, gold: str, right: bool) -> None:
    assert (grade(answer, gold).verdict is Verdict.RIGHT) == right


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("12.566", "12.57", True),
        ("12.56", "12.57", False),
        ("0.49", "0.5", False),
        ("0.52", "0.5", False),
        ("1/3", "0.3", False),
        ("1/3", "0.33", True),
        (r"3\sqrt{3}", "5.2", True),
        ("3.14", r"\pi", False),
        ("10001", "10000", False),
        ("6.022e23", "6.02e23", True),
    ],
)
def test_tolerance_only_for_decimal_golds(answer: str, gold: str, right: bool) -> None:
    assert (grade(answer, gold).verdict is Verdict.RIGHT) == right
