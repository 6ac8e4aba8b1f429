"""Answers with the same meaning share a vote."""

from __future__ import annotations

import pytest

from mclabel.answers import Checker, group_answers, group_answers_per_problem


def test_equal_answers_share_a_number(checker: Checker) -> None:
    answers = ["1/2", "0.5", r"\frac{1}{2}", None, "x+1", "1+x", "0.33", "1/3", "(1,2)", "(2,1)"]
    numbers = group_answers(answers, checker)
    assert numbers[3] is None
    assert numbers[0] == numbers[1] == numbers[2]
    assert numbers[4] == numbers[5]
    rest = [numbers[i] for i in (0, 4, 6, 7, 8, 9)]
    assert len(set(rest)) == len(rest)  # 0.33 is not 1/3: no gold says how far to round
    assert group_answers([], checker) == []


def test_odd_answers_are_compared_with_the_commonest_alone(checker: Checker) -> None:
    numbers = group_answers([f"\\sin(x^{{{i}}})+\\foo{i}" for i in range(300)] + ["7"] * 3, checker)
    assert numbers[-3:] == [numbers[-1]] * 3
    assert len(set(numbers)) == 301


@pytest.mark.slow
def test_many_problems_are_grouped_as_each_alone(checker: Checker) -> None:
    problems = [
        ["1/2", "0.5", None, "x+1", "1+x", "\\sin 2x", "2\\sin x\\cos x"],
        [],
        ["7", "7.0", "8", "\\frac{16}{2}"],
        [None],
    ]
    together = group_answers_per_problem(problems, checker)
    assert together == [group_answers(answers, checker) for answers in problems]
    assert together[0][5] == together[0][6]
