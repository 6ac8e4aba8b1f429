"""Selection of solutions with exact probabilities."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from mclabel.core.errors import DataError
from mclabel.select.pool import ChosenSolutions, choose_solutions, compute_uniform_part

NAN = float("nan")


def choose(keys: list[float], problems: str, wrong: str = "", **settings: Any) -> ChosenSolutions:
    return choose_solutions(
        [f"s{place}" for place in range(len(keys))],
        np.array([ord(letter) for letter in problems]) - ord("a"),
        np.array(keys),
        np.array([str(place) in wrong for place in range(len(keys))]),
        **{
            "uniform_share": 0.0,
            "seed": 0,
            "wrong_share": None,
            "per_problem": None,
            **settings,
        },
    )


def test_problems_take_turns() -> None:
    keys = [0.9, 0.8, 0.7, 0.6, 0.5, NAN]
    assert choose(keys, "aaabbb", budget=2).certain.tolist() == [0, 3]
    assert choose(keys, "aaabbb", budget=4).certain.tolist() == [0, 3, 1, 4]
    assert choose(keys, "aaabbb", budget=5).certain.tolist() == [0, 3, 1, 4, 2]
    assert choose(keys, "aaabbb", budget=3, per_problem=2).certain.tolist() == [0, 3, 1]


@pytest.mark.parametrize(
    ("budget", "more", "message"),
    [
        (6, {}, "to choose 6 solutions, but of 6 in the pool it ranks 5 and can choose 5"),
        (
            5,
            {"per_problem": 2},
            "it ranks 5 and can choose 4 with at most 2 from a problem. Lower budget",
        ),
    ],
)
def test_too_few_to_choose_from(budget: int, more: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        choose([0.9, 0.8, 0.7, 0.6, 0.5, NAN], "aaabbb", budget=budget, **more)


def test_four_of_five_are_convincing_wrong_answers() -> None:
    keys = [place / 10 for place in range(10)]
    settings: dict[str, Any] = {"wrong_share": 0.8, "budget": 5}
    assert choose(keys, "abcdefghij", "01234567", **settings).certain.tolist() == [7, 6, 5, 4, 9]
    # If one kind has too few solutions, the other kind fills the remaining places.
    assert choose(keys, "abcdefghij", "01", **settings).certain.tolist() == [1, 0, 9, 8, 7]
    assert choose(keys, "abcdefghij", "0123456789", **settings).certain.tolist() == [9, 8, 7, 6, 5]
    # Both kinds count towards the limit per problem.
    selection = choose(keys, "aaaaabbbbb", "01234567", **settings, per_problem=3)
    assert Counter(place // 5 for place in selection.certain.tolist()) == {0: 2, 1: 3}


def test_a_share_of_the_budget_is_drawn() -> None:
    assert [compute_uniform_part(budget, 0.15) for budget in (1, 2, 10, 100)] == [1, 1, 2, 15]
    assert (compute_uniform_part(10, 0.0), compute_uniform_part(10, 1.0)) == (0, 10)


def test_every_other_solution_is_drawn_with_the_probability_that_is_given() -> None:
    """Over 2,000 seeds, each of the 16 others (one without a score) is drawn 4 times in 16."""
    keys, counts = [place / 20 for place in range(19)] + [NAN], Counter[int]()
    for seed in range(2000):
        selection = choose(keys, "a" * 20, budget=8, uniform_share=0.5, seed=seed)
        assert selection.certain.tolist() == [18, 17, 16, 15] and len(selection.drawn) == 4
        assert selection.probability == 4 / 16
        assert not set(selection.drawn.tolist()) & set(selection.certain.tolist())
        counts.update(selection.drawn.tolist())
    assert set(counts) == {*range(15), 19}
    off = [(count - 500) / (2000 * 0.25 * 0.75) ** 0.5 for count in counts.values()]
    assert max(map(abs, off)) < 4


def test_the_order_of_the_pool_does_not_matter() -> None:
    names = [f"s{place}" for place in range(40)]
    keys, turned = np.array([0.1, 0.5] * 20), np.random.default_rng(0).permutation(40)

    def choose_in_order(order: Any) -> tuple[list[str], list[str]]:
        selection = choose_solutions(
            [names[place] for place in order],
            np.arange(40)[order] % 4,
            keys[order],
            np.zeros(40, dtype=bool),
            budget=12,
            uniform_share=0.5,
            seed=3,
            wrong_share=None,
            per_problem=None,
        )
        named = [names[place] for place in order]
        return [named[p] for p in selection.certain], sorted(named[p] for p in selection.drawn)

    assert choose_in_order(np.arange(40)) == choose_in_order(turned)


def test_all_of_a_pool_can_be_chosen() -> None:
    selection = choose([0.1, 0.2, NAN], "abc", budget=3, uniform_share=0.34)
    assert (selection.certain.tolist(), selection.drawn.tolist(), selection.probability) == (
        [1, 0],
        [2],
        1.0,
    )
    none = choose([0.1, 0.2], "ab", budget=2)
    assert (none.drawn.tolist(), none.probability) == ([], 1.0)
