"""Intervals and means over a pool, compared with literals by hand and exact enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.stats.intervals import (
    ERRORS_AT_95,
    StoppingRule,
    _compute_single_interval_error,
    clopper_pearson,
    repeated_interval,
    stop_at_first_success,
)
from mclabel.core.stats.pool import estimate_pool_mean
from mclabel.select.pool import choose_solutions


def test_repeated_interval_is_clopper_pearson_at_horizon_one_and_wider_after() -> None:
    assert repeated_interval(1, 1, horizon=1) == pytest.approx(clopper_pearson(1, 1))
    narrow, wide = clopper_pearson(8, 16), repeated_interval(8, 16, horizon=64)
    assert wide[0] < narrow[0] and narrow[1] < wide[1]
    assert (wide[1] - wide[0]) / (narrow[1] - narrow[0]) < 1.5
    with pytest.raises(ValueError, match="num_trials=9: must be <= horizon=8"):
        repeated_interval(0, 9, horizon=8)


@pytest.mark.parametrize("horizon", [32, 300])
@pytest.mark.parametrize("p", [0.004, 0.02, 0.1, 0.25, 0.5, 0.77])
def test_all_looks_are_covered_at_once(p: float, horizon: int) -> None:
    alive, missed = np.zeros(horizon + 2), 0.0
    alive[0] = 1.0
    for n in range(1, horizon + 1):
        alive[1:] = alive[1:] * (1 - p) + alive[:-1] * p
        alive[0] *= 1 - p
        for k in np.flatnonzero(alive[: n + 1] > 1e-12).tolist():
            low, high = repeated_interval(k, n, horizon=horizon)
            if not low <= p <= high:
                missed += alive[k]
                alive[k] = 0.0
    assert 0.0 < missed <= 0.05


def test_a_long_horizon_widens_intervals_a_little() -> None:
    widths = [
        high - low
        for low, high in [
            repeated_interval(50, 100, horizon=horizon) for horizon in (128, 256, 1024)
        ]
    ]
    assert widths == sorted(widths) and widths[-1] < 1.2 * widths[0]
    assert ERRORS_AT_95[256] == pytest.approx(_compute_single_interval_error(256, 0.95), rel=1e-4)


def test_first_success_by_hand() -> None:
    rule = stop_at_first_success(batch=2, cap=4)
    assert rule == StoppingRule(looks=(2, 4))
    assert not rule.ends_at(0, 2) and not rule.ends_at(3, 4)


@pytest.mark.parametrize(
    "rule",
    [
        stop_at_first_success(batch=1, cap=16),
        stop_at_first_success(batch=4, cap=64),
    ],
    ids=["first success", "in batches"],
)
def test_intervals_cover_on_any_lattice(rule: StoppingRule) -> None:
    points = [(k, n) for n in rule.looks for k in range(n + 1) if rule.ends_at(k, n)]
    for p in (0.003, 0.05, 0.2, 0.5, 0.81, 0.97):
        chance = _compute_chances(rule, p)
        assert sum(chance.values()) == pytest.approx(1)
        assert set(chance) == set(points)
        assert sum(c for y, c in chance.items() if _contains(rule.interval(*y), p)) >= 0.95


def _contains(bounds: tuple[float, float], p: float) -> bool:
    return bounds[0] <= p <= bounds[1]


def _compute_chances(rule: StoppingRule, p: float) -> dict[tuple[int, int], float]:
    """Return the chance of each stopping point, computed trial by trial."""
    alive, stopped, n = {0: 1.0}, {}, 0
    while alive:
        n += 1
        grown: dict[int, float] = {}
        for k, c in alive.items():
            grown[k] = grown.get(k, 0.0) + c * (1 - p)
            grown[k + 1] = grown.get(k + 1, 0.0) + c * p
        alive = grown
        if n in rule.looks:
            for k in [k for k in alive if k > 0 or n == rule.looks[-1]]:
                stopped[k, n] = alive.pop(k)
    return stopped


SIZE, BUDGET, SHARE = 3000, 400, 0.25


def test_by_hand() -> None:
    # two certain ones, and two drawn of four others: (5 + 1 + 4 * (0 + 3) / 2) / 6
    interval = estimate_pool_mean([5, 1, 0, 3], [1, 1, 0.5, 0.5], num_pool=6, num_certain=2)
    assert interval.mean == 2.0 and interval.low < 2 < interval.high and interval.num_drawn == 2
    # one drawn solution has no label, so the other represents all four
    assert estimate_pool_mean([5, 1, 3], [1, 1, 0.5], num_pool=6, num_certain=2).mean == 3.0
    whole = estimate_pool_mean([1, 0, 0], [1, 1, 1], num_pool=3, num_certain=3)
    assert (whole.mean, whole.low, whole.high) == (1 / 3, 1 / 3, 1 / 3)


def test_wilson_for_shares() -> None:
    # 0 of 10 drawn from a nearly infinite pool: t(9) = 2.262, 2.262² / (10 + 2.262²) = 0.3385
    interval = estimate_pool_mean([0.0] * 10, [1e-9] * 10, num_pool=10**10, num_certain=0)
    assert (interval.mean, interval.low) == (0.0, 0.0) and interval.high == pytest.approx(
        0.3385, abs=1e-4
    )


@pytest.mark.parametrize(
    ("values", "probabilities", "certain", "message"),
    [
        ([1, 2], [1, 1], 2, "of the pool's 10 solutions are not represented"),
        ([1, 2], [0.5, 0.25], 0, "must all be equal, because one selection"),
        ([1, 2], [0.1, 0.1], 0, "2 values with probability 0.1: more than were drawn from 10"),
        ([1, 2], [0.5, 0.5], 3, "num_certain=3: no solution with probability 1 has a value"),
        ([1, float("nan")], [0.5, 0.5], 0, "must be finite. Omit solutions without a value"),
        ([1], [0.0], 0, r"must be in \(0, 1\]"),
        ([1], [0.5, 0.5], 0, "both must be lists of the same length"),
    ],
)
def test_what_is_no_estimate(
    values: list[float], probabilities: list[float], certain: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        estimate_pool_mean(values, probabilities, num_pool=10, num_certain=certain)


def measure_coverage(values: np.ndarray, seeds: range) -> tuple[float, float]:
    """Return the coverage of the mean, and the mean error as a share of the interval's width."""
    ids, truth = [str(place) for place in range(SIZE)], values.mean()
    keys = values + np.random.default_rng(0).normal(0, values.std(), SIZE)  # a PRM, roughly
    hits, errors, widths = 0, 0.0, 0.0
    for seed in seeds:
        chosen = choose_solutions(
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
        probabilities = [1.0] * len(chosen.certain) + [chosen.probability] * len(chosen.drawn)
        interval = estimate_pool_mean(
            values[np.concatenate([chosen.certain, chosen.drawn])],
            probabilities,
            num_pool=SIZE,
            num_certain=len(chosen.certain),
        )
        hits += interval.low <= truth <= interval.high
        errors, widths = errors + interval.mean - truth, widths + interval.high - interval.low
    return hits / len(seeds), errors / widths


def test_intervals_cover_the_mean_of_a_skewed_pool() -> None:
    share, error = measure_coverage(np.random.default_rng(1).beta(0.3, 1.2, SIZE), range(100))
    assert share >= 0.90 and abs(error) < 0.1
