"""Means over a pool from a selection of it."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.stats.pool import pool_mean
from mclabel.select.pool import choose

SIZE, BUDGET, SHARE = 3000, 400, 0.25


def test_by_hand() -> None:
    # two certain ones; four others, of which two are drawn: (5 + 1 + 4 * (0 + 3) / 2) / 6
    found = pool_mean([5, 1, 0, 3], [1, 1, 0.5, 0.5], num_pool=6, num_certain=2)
    assert found.mean == 2.0 and found.low < 2 < found.high and found.num_drawn == 2
    # one of the drawn has no label: the other stands for all four
    assert pool_mean([5, 1, 3], [1, 1, 0.5], num_pool=6, num_certain=2).mean == 3.0
    whole = pool_mean([1, 0, 0], [1, 1, 1], num_pool=3, num_certain=3)
    assert (whole.mean, whole.low, whole.high) == (1 / 3, 1 / 3, 1 / 3)


def test_wilson_for_shares() -> None:
    # 0 of 10 drawn of nearly infinitely many: t(9) = 2.262, 2.262² / (10 + 2.262²) = 0.3385
    found = pool_mean([0.0] * 10, [1e-9] * 10, num_pool=10**10, num_certain=0)
    assert (found.mean, found.low) == (0.0, 0.0) and found.high == pytest.approx(0.3385, abs=1e-4)


@pytest.mark.parametrize(
    ("values", "probabilities", "certain", "said"),
    [
        ([1, 2], [1, 1], 2, "of the pool's 10 solutions could not be chosen"),
        ([1, 2], [0.5, 0.25], 0, "must be one number, that of one selection"),
        ([1, 2], [0.1, 0.1], 0, "2 values with probability 0.1: more than were drawn of 10"),
        ([1, 2], [0.5, 0.5], 3, "num_certain=3: none of these has a value"),
        ([1, float("nan")], [0.5, 0.5], 0, "must be finite. Leave solutions without a value out"),
        ([1], [0.0], 0, r"must be in \(0, 1\]"),
        ([1], [0.5, 0.5], 0, "need one of each"),
    ],
)
def test_what_is_no_estimate(
    values: list[float], probabilities: list[float], certain: int, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        pool_mean(values, probabilities, num_pool=10, num_certain=certain)


def pools() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {
        "beta": rng.beta(0.3, 1.2, SIZE),
        "lognormal": rng.lognormal(0, 1, SIZE),
        "many_zeros": np.where(rng.random(SIZE) < 0.6, 0, rng.random(SIZE)),
        "share": (rng.random(SIZE) < 0.3) * 1.0,
    }


def covered(values: np.ndarray, seeds: range) -> tuple[float, float]:
    """Share of selections whose interval holds the mean, and the mean error in widths."""
    ids, truth = [str(place) for place in range(SIZE)], values.mean()
    keys = values + np.random.default_rng(0).normal(0, values.std(), SIZE)  # a PRM, roughly
    hits, errors, widths = 0, 0.0, 0.0
    for seed in seeds:
        one = choose(
            ids,
            np.zeros(SIZE, dtype=np.int64),
            keys,
            np.zeros(SIZE, dtype=bool),
            budget=BUDGET,
            uniform_share=SHARE,
            seed=seed,
            wrong_share=None,
            per_problem=None,
        )
        probabilities = [1.0] * len(one.certain) + [one.probability] * len(one.drawn)
        places = np.concatenate([one.certain, one.drawn])
        found = pool_mean(
            values[places], probabilities, num_pool=SIZE, num_certain=len(one.certain)
        )
        hits += found.low <= truth <= found.high
        errors, widths = errors + found.mean - truth, widths + found.high - found.low
    return hits / len(seeds), errors / widths


def test_intervals_cover_the_mean_of_a_skewed_pool() -> None:
    share, error = covered(pools()["beta"], range(100))
    assert share >= 0.90 and abs(error) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", pools())
def test_intervals_cover_in_93_to_97_of_100(name: str) -> None:
    share, error = covered(pools()[name], range(1000))
    assert 0.93 <= share <= 0.97 and abs(error) < 0.03
