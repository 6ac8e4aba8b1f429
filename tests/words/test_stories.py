"""Word problems: right worked solutions, and held-out problems that are not used in training."""

from __future__ import annotations

import re

import pytest

from mclabel.answers import grade_completion
from mclabel.core.errors import ConfigError
from mclabel.data.readers.base import make_reader, make_reader_settings
from mclabel.domains.words import HELD_OUT, TRAINED, generate_problems

SUM = re.compile(r"(\d+) ([-+*]) (\d+) = (\d+)")


@pytest.mark.parametrize("held_out", [True, False])
def test_worked_solutions_are_right(held_out: bool) -> None:
    for worked in generate_problems(200, seed=7, held_out=held_out):
        *steps, last = worked.solution.split("\n")
        assert len(steps) >= 3
        for step in steps:
            sum_match = SUM.search(step)
            assert sum_match is not None, step
            a, sign, b, value = sum_match.groups()
            assert {"+": int(a) + int(b), "-": int(a) - int(b), "*": int(a) * int(b)}[sign] == int(
                value
            )
            assert int(value) >= 0, worked.problem
        assert grade_completion(worked.solution, worked.answer)[1].verdict == "right", last


def test_problems_are_a_function_of_the_seed() -> None:
    problems = [worked.problem for worked in generate_problems(50, seed=0, held_out=True)]
    assert problems[0] == (
        "A farmer has 6 rows of 4 trees. The farmer cuts down 3 trees. Then the farmer plants 9 "
        "new trees. In spring 6 more are planted. How many trees are there now?"
    )
    assert problems != [worked.problem for worked in generate_problems(50, seed=1, held_out=True)]


def test_test_problems_are_of_stories_that_are_not_trained_on() -> None:
    assert not set(HELD_OUT) & set(TRAINED)
    reader = make_reader(make_reader_settings("words", limit=10))
    rows = list(reader.rows())
    assert [number for number, _ in rows] == list(range(1, 11))
    assert {problem.meta["template"] for _, problem in rows} == set(HELD_OUT)


def test_words_need_a_limit() -> None:
    with pytest.raises(ConfigError, match=r"required for problems\.source=words"):
        make_reader(make_reader_settings("words"))
