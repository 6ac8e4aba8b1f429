"""Reliability, ECE and Brier score by hand and against figures of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.evaluate.labels.calibration import Prediction, calibration


def predictions(pairs: list[tuple[float, float]]) -> list[Prediction]:
    return [
        Prediction(problem_id=str(i % 7), predicted=s, observed=c) for i, (s, c) in enumerate(pairs)
    ]


def test_by_hand() -> None:
    found = calibration(predictions([(0.2, 0), (0.2, 1), (0.8, 1), (0.9, 1)]))
    assert found is not None
    # Bins end at what is predicted: two at .2, one of which happened, and at .8 and .9 one each.
    assert [
        (round(b.low, 9), b.num_predictions, b.predicted, b.observed.value) for b in found.bins
    ] == [
        (0.1, 2, pytest.approx(0.2), 0.5),
        (0.7, 1, pytest.approx(0.8), 1.0),
        (0.8, 1, pytest.approx(0.9), 1.0),
    ]
    assert found.ece.value == pytest.approx(2 / 4 * 0.3 + 1 / 4 * 0.2 + 1 / 4 * 0.1)
    assert found.brier.value == pytest.approx((0.04 + 0.64 + 0.04 + 0.01) / 4)
    assert found.base_brier.value == pytest.approx(0.75 * 0.25)
    assert found.num_problems == found.num_predictions == 4


def test_a_share_of_events_counts_as_its_single_events() -> None:
    together = calibration([Prediction(problem_id="a", predicted=0.3, observed=0.25)])
    apart = calibration(
        [Prediction(problem_id="a", predicted=0.3, observed=c) for c in (1, 0, 0, 0)]
    )
    assert together is not None and apart is not None
    for name in ("ece", "brier", "base_brier"):
        one, four = getattr(together, name).value, getattr(apart, name).value
        assert one == pytest.approx(four) and one > 0


def test_nothing_said() -> None:
    assert calibration([]) is None


def test_as_scikit_learn() -> None:
    rng = np.random.RandomState(1)  # whose draws never change
    predicted = np.round(rng.beta(0.6, 0.6, 500) * 16) / 16  # edges of bins among them
    observed = (rng.random_sample(500) < predicted**2).astype(float)
    found = calibration(predictions(list(zip(predicted.tolist(), observed.tolist(), strict=True))))
    assert found is not None
    # sklearn.calibration.calibration_curve(observed, predicted, n_bins=10) of scikit-learn 1.9.1
    share = np.array(
        [
            *(0.0, 0.027777777777777776, 0.034482758620689655, 0.07894736842105263),
            *(0.2857142857142857, 0.3888888888888889, 0.32727272727272727, 0.4090909090909091),
            *(0.7543859649122807, 0.8987341772151899),
        ]
    )
    mean = np.array(
        [
            *(0.032670454545454544, 0.15364583333333334, 0.25, 0.33881578947368424),
            *(0.47023809523809523, 0.5625, 0.6579545454545455, 0.75),
            *(0.8475877192982456, 0.9723101265822784),
        ]
    )
    assert [b.observed.value for b in found.bins] == pytest.approx(share.tolist())
    assert [b.predicted for b in found.bins] == pytest.approx(mean.tolist())
    # sklearn.metrics.brier_score_loss(observed, predicted)
    assert found.brier.value == pytest.approx(0.140625)
    weights = np.array([b.num_predictions for b in found.bins]) / 500
    assert found.ece.value == pytest.approx(float((weights * abs(share - mean)).sum()))
    assert found.ece.low is not None and found.ece.high is not None
    assert found.ece.low < found.ece.high
