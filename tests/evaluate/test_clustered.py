"""Intervals over problems by formula: literals, and their coverage of the truth."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.stats.bootstrap import estimate_clustered_mean, estimate_clustered_share
from mclabel.core.stats.intervals import clopper_pearson


def test_a_solution_a_problem_is_clopper_pearson() -> None:
    estimate = estimate_clustered_share(np.array([1.0] * 7 + [0.0] * 3), np.ones(10))
    low, high = clopper_pearson(7, 10)
    # The only difference is n / (n - 1) in the variance: 0.7 * 0.3 / (0.21 / 9) is 9 instead of 10.
    assert (estimate.value, estimate.low, estimate.high) == pytest.approx(
        (0.7, low, high), abs=0.03
    )


def test_solutions_that_go_together_count_as_few() -> None:
    """Ten problems with four equal solutions each count as ten solutions, not as forty."""
    alike = estimate_clustered_share(np.array([4.0] * 5 + [0.0] * 5), np.full(10, 4.0))
    ten = estimate_clustered_share(np.array([1.0] * 5 + [0.0] * 5), np.ones(10))
    mixed = estimate_clustered_share(np.full(10, 2.0), np.full(10, 4.0))
    assert alike.low == pytest.approx(ten.low, abs=0.04)
    assert alike.high - alike.low > 1.5 * (mixed.high - mixed.low)  # type: ignore[operator]


def test_where_nothing_varies_each_problem_counts_once() -> None:
    assert (
        estimate_clustered_share(np.zeros(10), np.full(10, 4.0)).high == clopper_pearson(0, 10)[1]
    )
    assert (
        estimate_clustered_share(np.full(10, 4.0), np.full(10, 4.0)).low
        == clopper_pearson(10, 10)[0]
    )
    assert estimate_clustered_share(np.zeros(0), np.zeros(0)).value is None
    of_one_problem = estimate_clustered_share(np.array([2.0]), np.array([4.0]))
    assert of_one_problem.value == 0.5 and of_one_problem.low < 0.05 and of_one_problem.high > 0.95  # type: ignore[operator]


def test_a_mean_by_hand() -> None:
    """Means 0, 1 and 2 of one term each: the mean is 1, its error 1 / sqrt(3), and t = 4.303."""
    sums, counts = np.array([0.0, 1.0, 2.0, 9.0]), np.array([1.0, 1.0, 1.0, 0.0])
    estimate = estimate_clustered_mean(sums, counts, low=-9.0, high=9.0)
    assert estimate.value == 1.0 and estimate.high == pytest.approx(1 + 4.3027 / 3**0.5, abs=1e-3)
    assert estimate_clustered_mean(sums, counts, low=0.0, high=2.0).high == 2.0
    assert estimate_clustered_mean(np.ones(1), np.ones(1), low=0.0, high=1.0).value is None


@pytest.mark.parametrize("num_problems", [5, 20, 100])
@pytest.mark.parametrize(("share", "likeness"), [(0.4, 0.5), (0.05, 0.5), (0.6, 0.1)])
def test_intervals_hold_the_truth(num_problems: int, share: float, likeness: float) -> None:
    rng = np.random.default_rng(0)
    odds = (1 - likeness) / likeness
    held = 0
    for _ in range(600):
        counts = rng.integers(1, 9, num_problems).astype(np.float64)
        estimate = estimate_clustered_share(
            rng.binomial(
                counts.astype(int), rng.beta(share * odds, (1 - share) * odds, num_problems)
            ).astype(float),
            counts,
        )
        held += estimate.low <= share <= estimate.high  # type: ignore[operator]
    assert held / 600 > 0.92
