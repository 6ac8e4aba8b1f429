"""Every field of GradeRules: what its default says, and what it says the other way."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from mclabel.answers import GradeRules, grade
from mclabel.core.records import Verdict

TABLE: list[tuple[str, Any, str, str, bool]] = [
    # field, its other value, answer, gold, right by default
    ("round_to_gold", False, "3.14159", "3.14", True),
    ("round_to_gold", False, r"\pi", "3.14", True),
    ("percent_as_fraction", False, "0.5", r"50\%", True),
    ("percent_sign_optional", False, "50", r"50\%", True),
    ("degree_sign_optional", False, "90", r"90^\circ", True),
    ("degrees_as_radians", False, r"\frac{\pi}{2}", r"90^\circ", True),
    ("units_optional", False, "5", "5 cm", True),
    ("base_subscript_optional", False, "1010", "1010_2", True),
    ("meridiem_optional", False, "4:30", "4:30 pm", True),
    ("variable_optional", False, "5", "x = 5", True),
    ("brackets_optional", False, "1, 2", "(1, 2)", True),
    ("vector_as_tuple", False, "(1, 2)", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}", True),
    ("ratio_as_fraction", False, r"\frac{3}{5}", "3:5", True),
    ("ordered_lists", True, "2, 1", "1, 2", True),
    ("ordered_sets", True, r"\{2, 1\}", r"\{1, 2\}", True),
    ("accept_hedged", True, "3 or 4", "3", False),
    ("ordered_assignments", False, "2, 1", "x = 1, y = 2", False),
    ("ordered_assignments", False, "False, True", "True, False", False),
    ("decimal_comma", False, "2,74", "2.74", True),
    ("approximation_of_gold", False, "3.46", r"2\sqrt{3} \approx 3.46", True),
    ("full_precision", 0, "1.4142135623730951", r"\sqrt{2}", True),
    ("relative_tolerance", 0.05, "9.9", "9.6", False),
    ("relative_tolerance", 0.02, r"\sqrt{2}", r"\frac{7}{5}", False),
    ("base_is_asked", False, "555_{10}", "4210_5", False),
    ("any_constant", False, "x^2 + c", "x^2 + C", True),
    ("any_constant", False, r"\frac{\pi}{4} + n\pi", r"\frac{\pi}{4} + k\pi", True),
    ("letters_are_names", False, "ACB", "ABC", False),
    ("ignore_case", False, "thursday", "Thursday", True),
]


@pytest.mark.parametrize(("field", "other", "answer", "gold", "right"), TABLE)
def test_rule(field: str, other: Any, answer: str, gold: str, right: bool) -> None:
    assert (grade(answer, gold).verdict is Verdict.RIGHT) == right
    changed = grade(answer, gold, rules=replace(GradeRules(), **{field: other}))
    assert (changed.verdict is Verdict.RIGHT) != right


def test_every_field_is_tested() -> None:
    of_completions = {"grade_guesses"}  # in test_extract.py
    every = {field.name for field in fields(GradeRules)}
    assert {row[0] for row in TABLE} == every - of_completions


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
