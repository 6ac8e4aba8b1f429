"""Confidence bands contain the truth at their nominal rate."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.stats.bootstrap import draw_resample_weights, estimate_from_sums, estimate_ratio
from tests.support.bands import NUM_STEPS, errors, truths


@pytest.fixture(scope="module")
def true() -> dict[str, float]:
    return truths()


@pytest.mark.slow
@pytest.mark.parametrize("num_problems", [20, 300])
def test_bands_hold_the_truth_in_95_of_100_runs(true: dict[str, float], num_problems: int) -> None:
    """Each problem has four correlated solutions; 1,500 runs give +-.011 at two sigma."""
    num_runs, rng = 1500, np.random.default_rng(17)
    weights = draw_resample_weights(num_problems, seed=0)
    held = dict.fromkeys(("first_error_accuracy", "first_error_accuracy_wrong", "f1"), 0)
    for _ in range(num_runs):
        first, label = errors(num_problems, rng)
        hit, wrong = first == label, first < NUM_STEPS
        sums = [
            hit,
            np.ones_like(hit),
            hit & wrong,
            wrong,
            (NUM_STEPS - np.maximum(first, label)),
            2 * NUM_STEPS - first - label,
        ]
        table = np.stack([column.sum(1) for column in sums], 1).astype(np.float64)
        estimates = {
            "first_error_accuracy": estimate_ratio(table[:, 0], table[:, 1], weights),
            "first_error_accuracy_wrong": estimate_ratio(table[:, 2], table[:, 3], weights),
            "f1": estimate_from_sums(table, weights, lambda s: 2 * s[..., 4] / s[..., 5]),
        }
        for name, estimate in estimates.items():
            assert estimate.low is not None and estimate.high is not None
            held[name] += estimate.low <= true[name] <= estimate.high
    for name, count in held.items():
        assert 0.93 <= count / num_runs <= 0.97, name
