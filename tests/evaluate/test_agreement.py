"""Cohen's kappa compared with values by hand and with results of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.stats.bootstrap import compute_cohen_kappa


def test_by_hand() -> None:
    # 20 + 15 of 50 agree: .7. By chance: (25 · 30 + 25 · 20) / 2500 = .5. (.7 - .5) / .5 = .4
    assert compute_cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])) == pytest.approx(0.4)
    assert compute_cohen_kappa(np.array([[3.0, 0.0], [0.0, 7.0]])) == 1
    assert compute_cohen_kappa(np.array([[0.0, 5.0], [5.0, 0.0]])) == -1


def test_nothing_to_agree_on() -> None:
    assert np.isnan(compute_cohen_kappa(np.array([[8.0, 0.0], [0.0, 0.0]])))
    assert np.isnan(compute_cohen_kappa(np.zeros((2, 2))))


def test_as_scikit_learn_many_at_once() -> None:
    rng = np.random.RandomState(0)  # the draws of RandomState never change between versions
    one, other = rng.randint(0, 2, (2, 20, 60))
    other = np.where(rng.random_sample(one.shape) < 0.5, one, other)
    counts = np.array(
        [
            [[((a == i) & (b == j)).sum() for j in (0, 1)] for i in (0, 1)]
            for a, b in zip(one, other, strict=True)
        ],
        dtype=float,
    )
    # sklearn.metrics.cohen_kappa_score(one[i], other[i]) of scikit-learn 1.9.1
    known = [
        *(0.48275862068965514, 0.43333333333333335, 0.45945945945945954, 0.6357615894039735),
        *(0.2953020134228188, 0.35665914221218953, 0.19580419580419584, 0.5286195286195285),
        *(0.6292134831460674, 0.43333333333333335, 0.39799331103678925, 0.375),
        *(0.5353982300884956, 0.42567567567567566, 0.5348837209302326, 0.5608108108108109),
        *(0.4046306504961411, 0.4358407079646017, 0.3107221006564552, 0.5291479820627802),
    ]
    assert compute_cohen_kappa(counts) == pytest.approx(known)
