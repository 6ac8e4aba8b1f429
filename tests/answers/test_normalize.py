from __future__ import annotations

from fractions import Fraction

import pytest

from mclabel.answers import answer_key, grade
from mclabel.answers.reading.normalize import normalize, remove_spaces
from mclabel.answers.values.literals import read_literal
from mclabel.core.records import Verdict


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        (r"\left( 3, \dfrac43 \right)", r"( 3, \frac{4}{3} )"),
        (r"\frac9{19}", r"\frac{9}{19}"),
        (r"\sqrt2", r"\sqrt{2}"),
        ("√19", r"\sqrt{19}"),
        ("½", r"\frac{1}{2}"),
        ("1½", r"1\frac{1}{2}"),
        ("x²", "x^{2}"),
        ("x₁", "x_{1}"),
        ("\u22123", "-3"),
        ("\uff14\uff12", "42"),
        ("\u0664\u0662", "42"),
        ("4\u200b2\u202e", "42"),
        (r"5\text{ cm}^2", "5 cm ^2"),
        (r"90^\circ", "90°"),
        (r"\$30", "$30"),
        ("$30$", "30"),
        ("$30", "$30"),
        (r"11,\! 111", "11,111"),
        ("1{,}200", "1,200"),
        (r"a \leq b", "a ≤b"),
        (r"\begin{pmatrix} 1 \\[8pt] 2 \end{pmatrix}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        ("2**10", "2^10"),
        ("**42**", "42"),
        (r"\mathbf{4}2", "42"),
    ],
)
def test_normalize(text: str, normalized: str) -> None:
    assert normalize(text) == normalized


def test_what_becomes_too_long_is_compared_whole() -> None:
    long = "\\frac12+" * 120
    assert grade(f"{long}1", f"{long}2").verdict is not Verdict.RIGHT
    assert grade(f"{long}1", f"{long}1").verdict is Verdict.RIGHT
    assert answer_key(f"{long}1") != answer_key(f"{long}2")


@pytest.mark.parametrize(
    ("text", "squeezed"), [("1 1/2", "1 1/2"), ("x + 1", "x+1"), ("( 1, 2 )", "(1,2)")]
)
def test_squeeze(text: str, squeezed: str) -> None:
    assert remove_spaces(text) == squeezed


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", Fraction(12)),
        ("-1,200.50", Fraction(-2401, 2)),
        ("1 000 000", Fraction(1_000_000)),
        (".5", Fraction(1, 2)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"-\frac{3}{-4}", Fraction(3, 4)),
        ("1 1/2", Fraction(3, 2)),
        (r"-2\frac{1}{3}", Fraction(-7, 3)),
        ("6.02e23", Fraction(602 * 10**21)),
        ("1.5*10^{-3}", Fraction(3, 2000)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        ("0.(27)", Fraction(3, 11)),
        ("0.333...", Fraction(1, 3)),
        ("1/0", None),
        ("1,2", None),
        ("1e99999", None),
        ("x", None),
        ("9" * 5000, None),
    ],
)
def test_literals(text: str, value: Fraction | None) -> None:
    literal = read_literal(text)
    assert (literal and literal.value) == value


@pytest.mark.parametrize(
    ("first", "second", "is_equal"),
    [
        ("1/2", r"\frac{2}{4}", True),
        ("$0.5$", "1/2", True),
        ("x + 1", "x+1", True),
        ("12", "112", False),
        ("1,200", "1200", True),
    ],
)
def test_answer_key(first: str, second: str, is_equal: bool) -> None:
    assert (answer_key(first) == answer_key(second)) is is_equal
