"""Reliability, ECE and Brier score compared with values by hand and with scikit-learn."""

from __future__ import annotations

import pytest

from mclabel.evaluate.labels.calibration import Prediction, measure_calibration


def predictions(pairs: list[tuple[float, float]]) -> list[Prediction]:
    return [
        Prediction(problem_id=str(i % 7), predicted=s, observed=c) for i, (s, c) in enumerate(pairs)
    ]


def test_by_hand() -> None:
    calibration = measure_calibration(predictions([(0.2, 0), (0.2, 1), (0.8, 1), (0.9, 1)]))
    assert calibration is not None
    # Bins end at predicted values: two predictions of .2, one of them true, one of .8, one of .9.
    assert [
        (round(b.low, 9), b.num_predictions, b.predicted, b.observed.value)
        for b in calibration.bins
    ] == [
        (0.1, 2, pytest.approx(0.2), 0.5),
        (0.7, 1, pytest.approx(0.8), 1.0),
        (0.8, 1, pytest.approx(0.9), 1.0),
    ]
    assert (
        calibration.ece.value,
        calibration.brier.value,
        calibration.base_brier.value,
    ) == pytest.approx(
        (2 / 4 * 0.3 + 1 / 4 * 0.2 + 1 / 4 * 0.1, (0.04 + 0.64 + 0.04 + 0.01) / 4, 0.75 * 0.25)
    )
    assert calibration.num_problems == calibration.num_predictions == 4
    assert measure_calibration([]) is None


def test_a_share_of_events_counts_as_its_single_events() -> None:
    together = measure_calibration([Prediction(problem_id="a", predicted=0.3, observed=0.25)])
    apart = measure_calibration(
        [Prediction(problem_id="a", predicted=0.3, observed=c) for c in (1, 0, 0, 0)]
    )
    assert together is not None and apart is not None
    for name in ("ece", "brier", "base_brier"):
        of_shares, of_events = getattr(together, name).value, getattr(apart, name).value
        assert of_shares == pytest.approx(of_events) and of_shares > 0
