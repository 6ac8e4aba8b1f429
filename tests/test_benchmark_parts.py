"""Figures that benchmarks of scorers share: choices and first errors."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from mclabel.core.records import LabeledSolution
from tests.benchmarks.scorer_figures import Comparison, choose, location_f1
from tests.benchmarks.scorers import NO_ERROR, Pool


def test_choosing_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 4, size=(20, 6)).astype(float)
    truth = rng.random((20, 6)) < 0.4
    for size in (1, 2, 4, 6):
        found = []
        for row, right in zip(scores, truth, strict=True):
            shares = []
            for chosen in combinations(range(6), size):
                best = [i for i in chosen if row[i] == max(row[list(chosen)])]
                shares.append(np.mean(right[best]))
            found.append(np.mean(shares))
        assert choose(scores, truth, size) == pytest.approx(np.array(found))


def test_first_errors() -> None:
    """Of three problems, the error of the first is found, and that of the second is not."""
    rows: list[LabeledSolution] = []
    pool = Pool(
        rows=rows,
        index=np.array([[0, 1], [2, 3], [4, 4]]),
        right=np.zeros((3, 2), dtype=bool),
        all_right=np.zeros((3, 2), dtype=bool),
        keys=[[None, None]] * 3,
        first_errors=np.array([1, 0, 2, 0, NO_ERROR]),
    )
    steps = [np.array(s) for s in ([0.9, 0.1], [0.9], [0.1, 0.9, 0.1], [0.9], [0.9, 0.8])]
    measured = Comparison(pool).location_f1([steps], 0.5)
    assert measured.value == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert measured.less(measured).numbers == [0.0, 0.0, 0.0]
    assert location_f1(np.array([0.0, 0, 3, 3])) == 0 and location_f1(np.array([2.0, 2, 3, 3])) == 1
