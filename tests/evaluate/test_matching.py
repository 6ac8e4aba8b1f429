"""Mapping of steps between a given solution and its version split on token boundaries."""

from __future__ import annotations

import pytest

from mclabel.evaluate.labels.truth import (
    convert_to_given_step,
    convert_to_labelled_step,
    make_solution_key,
)


@pytest.mark.parametrize(
    ("labelled", "pairs"),
    [
        (["ab\n", "cd\n", "ef"], [(0, 0), (1, 1), (2, 2)]),  # cut at the same places
        (["ab\nc", "d\ne", "f"], [(0, 0), (1, 1), (2, 2)]),  # each cut is one character late
        (["ab\n", "cd\ne", "f"], [(0, 0), (1, 1), (2, 2)]),  # only the second cut is late
        (["ab\n\n", "cdef"], [(0, 0), (1, 1), (2, 1)]),  # two steps within one token
    ],
)
def test_where_a_given_step_lies(labelled: list[str], pairs: list[tuple[int, int]]) -> None:
    given_steps = ["ab", "cd", "ef"]
    assert make_solution_key("p", labelled) == make_solution_key(" p\n", given_steps)
    for index, place in pairs:
        assert convert_to_labelled_step(index, given_steps, labelled) == place
    for place in range(len(labelled)):
        assert convert_to_given_step(place, labelled, given_steps) == place
    assert convert_to_labelled_step(None, given_steps, labelled) is None
    assert convert_to_given_step(None, labelled, given_steps) is None


def test_empty_steps_keep_their_place_where_cuts_are_equal() -> None:
    assert convert_to_labelled_step(1, ["ab", "", "cd"], ["ab\n", "\n", "cd"]) == 1
    assert convert_to_given_step(1, ["ab\n", "\n", "cd"], ["ab", "", "cd"]) == 1
