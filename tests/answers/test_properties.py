"""Properties of all pairs: no exception, reflexivity, symmetry, invariance under typesetting."""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mclabel.answers import answer_key, extract_answer
from mclabel.answers.grade import Grade, grade_in_process, normalize_answer
from mclabel.core.records import Verdict

EXAMPLES = int(os.environ.get("MCLABEL_FUZZ_EXAMPLES", "300"))
"""Number of examples per property; `MCLABEL_FUZZ_EXAMPLES=200000` is the long run."""
FUZZ = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None
)

PIECES = st.sampled_from(
    (
        r"1 2 3 10 12 0.5 1/2 x y n \pi i e + - * / ^ ^2 _ ( ) [ ] { } \{ \} , ; : | ! = < > ≤ ≠ ∪ "
        r"∞ ± % ° \frac \sqrt \frac{1}{2} \sqrt{2} \left( \right) \text{ cm \$ $ ... \sin \log \ln "
        r"& \begin{pmatrix} \end{pmatrix} \\ \infty \cup \in \mathbb{R} \overline{3} ½ ² √ and or "
        r"to cm m pm 4:30 (C) no solution Thursday \pm \le \circ _2 e23 \boxed{ answer is #### "
        r"\\[8pt] \binom \lfloor . ' \ "
    ).split(" ")
)
SOUP = st.lists(PIECES, max_size=14).map("".join) | st.lists(PIECES, max_size=14).map(" ".join)
TEXT = st.text(max_size=60) | SOUP

NUMBERS = st.integers(-99, 99).map(str) | st.sampled_from(["1/2", r"\frac{3}{4}", "0.5", "2.25"])
ATOMS = NUMBERS.map(lambda n: f"({n})" if n[0] == "-" else n) | st.sampled_from(
    ["x", "y", r"\pi", "i", r"\sqrt{2}", r"\sqrt{3}", "a_1"]
)
FORMULAS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", r"\cdot "]), inner).map("".join),
        st.tuples(inner, inner).map(lambda p: rf"\frac{{{p[0]}}}{{{p[1]}+7}}"),
        inner.map(lambda x: f"({x})"),
        inner.map(lambda x: f"({x})^2"),
    ),
    max_leaves=5,
)
ANSWERS = st.one_of(
    FORMULAS,
    st.tuples(FORMULAS, FORMULAS).map(lambda p: f"({p[0]}, {p[1]})"),
    st.tuples(NUMBERS, NUMBERS).map(lambda p: rf"\{{{p[0]}, {p[1]}\}}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda p: f"{p[0]}, {p[1]}"),
    st.tuples(NUMBERS, NUMBERS).map(lambda p: f"x > {p[0]}"),
    st.integers(1, 9).map(lambda n: rf"{n}\text{{ cm}}"),
    st.integers(1, 9).map(lambda n: rf"{n}^\circ"),
    st.integers(1, 9).map(lambda n: rf"{n}\%"),
    st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda p: f"{p[0]}:{p[1]}"),
    st.sampled_from(["Thursday", "no solution", "C", "(C) 12", "4:30 pm", "1010_2", r"\infty"]),
)


def judge_pair(answer: str, gold: str, *, units_optional: bool = True) -> Verdict:
    """Return the verdict of the layers before the worker; pairs left to the worker are unknown."""
    result = grade_in_process(answer, gold, units_optional=units_optional)
    return result.verdict if isinstance(result, Grade) else Verdict.UNKNOWN


@pytest.mark.slow
@FUZZ
@given(TEXT, TEXT)
def test_nothing_raises(a: str, b: str) -> None:
    extract_answer(f"{a}\\boxed{{{b}")
    extract_answer(f"{a} the answer is {b}. {a}")
    extract_answer(f"{a}#### {b}")
    answer_key(a)
    judge_pair(a, b)
    judge_pair(a, b, units_optional=False)


@FUZZ
@given(TEXT)
def test_an_answer_is_right_against_itself(a: str) -> None:
    if normalize_answer(a).key:
        assert judge_pair(a, a) is Verdict.RIGHT


@FUZZ
@given(ANSWERS, ANSWERS)
def test_symmetry(a: str, b: str) -> None:
    assume(not re.search(r"\d\.\d", a + b))
    assert judge_pair(a, b) is judge_pair(b, a)


@FUZZ
@given(ANSWERS, ANSWERS)
def test_typesetting_changes_nothing(a: str, b: str) -> None:
    before = judge_pair(a, b)
    for typeset in (
        re.sub(r"([-+=(){},])", r" \1 ", a),
        f"${a}$",
        f" {a} ",
        f"{a}.",
        a.replace("\\frac", "\\dfrac"),
        re.sub(r"(?<![\\])\)", r"\\right)", re.sub(r"(?<!\\)\(", r"\\left(", a)),
        f"\\boxed{{{a}}}",
    ):
        assert judge_pair(typeset, b) is before, typeset


@FUZZ
@given(FORMULAS, st.integers(1, 50))
def test_a_formula_is_not_itself_plus_something(a: str, n: int) -> None:
    assert judge_pair(f"{a}+{n}", a) is not Verdict.RIGHT
