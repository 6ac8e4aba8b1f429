"""Cohen's kappa by hand and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from mclabel.evaluation.agreement import cohen_kappa


def test_by_hand() -> None:
    # 20 + 15 of 50 agree: .7. By chance: (25 · 30 + 25 · 20) / 2500 = .5. (.7 - .5) / .5 = .4
    assert cohen_kappa(np.array([[20.0, 5.0], [10.0, 15.0]])) == pytest.approx(0.4)
    assert cohen_kappa(np.array([[3.0, 0.0], [0.0, 7.0]])) == 1
    assert cohen_kappa(np.array([[0.0, 5.0], [5.0, 0.0]])) == -1


def test_nothing_to_agree_on() -> None:
    assert np.isnan(cohen_kappa(np.array([[8.0, 0.0], [0.0, 0.0]])))
    assert np.isnan(cohen_kappa(np.zeros((2, 2))))


def test_as_scikit_learn_many_at_once() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 2, (2, 20, 60))
    other = np.where(rng.random(one.shape) < 0.5, one, other)
    counts = np.array(
        [
            [[((a == i) & (b == j)).sum() for j in (0, 1)] for i in (0, 1)]
            for a, b in zip(one, other, strict=True)
        ],
        dtype=float,
    )
    known = [cohen_kappa_score(a, b) for a, b in zip(one, other, strict=True)]
    assert cohen_kappa(counts) == pytest.approx(known)
