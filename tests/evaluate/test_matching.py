"""Mapping of steps between a given solution and its version split on token boundaries."""

from __future__ import annotations

import pytest

from mclabel.evaluate.labels.truth import solution_key, to_given_index, to_labelled_index


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
    assert solution_key("p", labelled) == solution_key(" p\n", given_steps)
    for index, place in pairs:
        assert to_labelled_index(index, given_steps, labelled) == place
    for place in range(len(labelled)):
        assert to_given_index(place, labelled, given_steps) == place
    assert to_labelled_index(None, given_steps, labelled) is None
    assert to_given_index(None, labelled, given_steps) is None


def test_empty_steps_keep_their_place_where_cuts_are_equal() -> None:
    assert to_labelled_index(1, ["ab", "", "cd"], ["ab\n", "\n", "cd"]) == 1
    assert to_given_index(1, ["ab\n", "\n", "cd"], ["ab", "", "cd"]) == 1
