"""Stopping when the leader is sure: chances against closed forms, and cases made by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mclabel.evaluate.best_of_n.choosing import ProblemSamples
from mclabel.evaluate.best_of_n.figures import Value, best_of_n, chance_above, num_drawn

UNIFORM = (0.5, 2.0)


def test_chances_of_one_value_above_another() -> None:
    assert chance_above((0.9, 5.0), UNIFORM) == pytest.approx(0.9, abs=1e-3)  # its mean
    assert chance_above(UNIFORM, (0.9, 5.0)) == pytest.approx(0.1, abs=2e-3)
    # Beta(2, 1) above Beta(1, 2): the integral of x (2 - x) 2 x over [0, 1] is 5/6
    assert chance_above((2 / 3, 3.0), (1 / 3, 3.0)) == pytest.approx(5 / 6, abs=1e-3)
    # Nearly sure to be 1 or 0: above only where the first is 1 and the other 0, half of ties
    assert chance_above((0.9, 0.001), (0.2, 0.001)) == pytest.approx(0.85, abs=0.01)


@given(
    st.tuples(st.floats(1e-6, 1 - 1e-6), st.floats(0.02, 2900)),
    st.tuples(st.floats(1e-6, 1 - 1e-6), st.floats(0.02, 2900)),
)
def test_either_of_two_is_above(one: Value, other: Value) -> None:
    assert chance_above(one, one) == pytest.approx(0.5, abs=0.02)
    assert chance_above(one, other) + chance_above(other, one) == pytest.approx(1, abs=0.03)


SURE, GOOD, BAD, VAGUE = (0.97, 1000.0), (0.95, 1000.0), (0.1, 50.0), (0.96, 2.0)


@pytest.mark.parametrize(
    ("values", "keys", "expected"),
    [
        ([SURE, BAD, BAD], "abc", 1),  # so good that no unknown answer is likely better
        ([BAD, BAD, BAD], "abc", 3),  # one leads, but an unknown answer is better
        ([(0.3, 900.0), (0.1, 900.0), BAD], "abc", 3),  # surely the best of bad ones
        ([BAD, SURE, BAD], "abc", 2),
        ([(0.5, 9.0), VAGUE, SURE, BAD], "xbac", 2),
        ([VAGUE, BAD], "ab", 1),  # a mean of .96 suffices where nothing is against it
        ([(0.85, 2.0), VAGUE, SURE, SURE], "xbac", 4),  # rivals are too close
        ([(0.85, 2.0), SURE, BAD, BAD], "xabb", 4),
        ([(0.85, 2.0), SURE, BAD, BAD], "aabb", 2),  # its rival has the same answer
        ([None, SURE, BAD], "abc", 2),
        ([None, None], "ab", 2),
    ],
)
def test_where_sampling_stops(values: list[Value | None], keys: str, expected: int) -> None:
    assert num_drawn(values, keys, stop_when=0.9) == expected


def test_what_stopping_saves_by_hand() -> None:
    def problem(name: str, right: list[bool], values: list[Value]) -> ProblemSamples:
        scores = {"beta": tuple(mean for mean, _ in values)}
        return ProblemSamples(
            problem_id=name,
            keys=("a", "b", "c", "d"),
            right=tuple(right),
            scores=scores,
            weights=scores,
            values={"beta": tuple(values)},
            num_tokens=(10, 20, 30, 40),
        )

    first = problem("p", [False, True, False, True], [BAD, GOOD, BAD, BAD])  # after 2, right
    second = problem("q", [False, False, True, False], [GOOD, BAD, SURE, BAD])  # after 1, wrong
    third = problem("r", [True, False, False, False], [(0.3, 5.0), BAD, BAD, BAD])  # never
    found = best_of_n([first, second, third], stop_when=0.9).adaptive["beta"]
    assert found.num_samples.value == pytest.approx((2 + 1 + 4) / 3)
    assert found.tokens.value == pytest.approx((30 + 10 + 100) / 300)
    assert (found.accuracy.value, found.full.value) == (pytest.approx(2 / 3), 1)
    assert found.less.value == pytest.approx(-1 / 3)
    assert best_of_n([first, second, third]).adaptive == {}
