"""Mapping of steps between a given solution and its version split on token boundaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.evaluate.labels.truth import solution_key, to_given_index, to_labelled_index


@pytest.mark.parametrize(
    ("labelled", "pairs"),
    [
        (["ab\n", "cd\n", "ef"], [(0, 0), (1, 1), (2, 2)]),  # cut at the same places
        (["ab\nc", "d\ne", "f"], [(0, 0), (1, 1), (2, 2)]),  # each cut is one character late
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


@given(
    st.lists(st.text("xyz \n", min_size=1, max_size=5), min_size=1, max_size=6),
    st.lists(st.integers(0, 1), min_size=6, max_size=6),
)
def test_cuts_that_are_late_by_a_character(steps: list[str], late: list[int]) -> None:
    steps = ["ab" + step for step in steps]  # long enough to keep a character
    text, ends, end = "".join(steps), [], 0
    for number, step in enumerate(steps):
        end += len(step)
        ends.append(min(end + late[number], len(text)) if number < len(steps) - 1 else len(text))
    moved = [text[a:b] for a, b in zip([0, *ends], ends, strict=False)]
    for index in range(len(steps)):
        assert to_labelled_index(index, steps, moved) == index
        assert to_given_index(index, moved, steps) == index
