"""ProcessBench's metric on its splits, by hand; thresholds compared with trying all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mclabel.core.errors import DataError
from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.processbench.figures import measure_processbench
from mclabel.prm.scoring.manifest import find_best_threshold, find_first_score_below


def make_judged_solutions(*errors: int | None, steps: int = 4) -> list[JudgedSolution]:
    return [
        JudgedSolution(id=str(i), problem=f"p{i}", steps=("x",) * steps, first_error=error)
        for i, error in enumerate(errors)
    ]


def f1_at(rows: list[JudgedSolution], scores: dict[str, list[float]], threshold: float) -> float:
    measurement = measure_processbench(
        {"s": rows},
        {"s": {row.id: find_first_score_below(scores[row.id], threshold) for row in rows}},
    ).mean_f1.value
    assert measurement is not None
    return measurement


def test_the_metric_by_hand() -> None:
    measurement = measure_processbench(
        {"s": make_judged_solutions(2, 0, 3, None, None)},
        {"s": {"0": 2, "1": 1, "2": None, "3": None, "4": 0}},
    )
    split = measurement.splits["s"]
    assert (split.num_wrong, split.num_right, split.missing) == (3, 2, ())
    # F1 is 2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2).
    values = (split.wrong_accuracy.value, split.right_accuracy.value, split.f1.value)
    assert values == pytest.approx((1 / 3, 1 / 2, 0.4))
    assert measurement.mean_f1 == split.f1 and measurement.threshold is None


def test_missing_solutions_are_left_out_and_named() -> None:
    split = measure_processbench(
        {"s": make_judged_solutions(2, 0, None, None)}, {"s": {"0": 2, "3": 1}}
    ).splits["s"]
    assert (split.missing, split.num_wrong, split.num_right) == (("1", "2"), 1, 1)
    assert split.wrong_accuracy.value == 1


def test_a_split_of_one_kind_has_no_f1_and_no_mean() -> None:
    rows = {"s": make_judged_solutions(2, 0), "t": make_judged_solutions(1, None)}
    measurement = measure_processbench(rows, {"s": {"0": 2, "1": 0}, "t": {"0": 1, "1": None}})
    assert [measurement.splits[name].f1.value for name in rows] == [None, 1]
    assert measurement.mean_f1.value is None


def test_threshold_by_hand() -> None:
    rows = make_judged_solutions(1, None, None, steps=2)
    scores = {"0": [0.9, 0.3], "1": [0.5, 0.6], "2": [0.2, 0.9]}
    # For thresholds over .3 and up to .5, the first row is found, the second is right and the third
    # is wrong, so F1 is 2/3.
    assert find_best_threshold(rows, scores) == pytest.approx(0.4)
    assert f1_at(rows, scores, 0.4) == pytest.approx(2 / 3)
    with pytest.raises(DataError, match=r"2 scored solutions with a wrong step and 0 without"):
        find_best_threshold(make_judged_solutions(0, 1), {"0": [0.1], "1": [0.1, 0.2]})
    with pytest.raises(DataError, match=r"0 scored solutions .* Set a threshold"):
        find_best_threshold(rows, {})


@settings(max_examples=40)
@given(st.data())
def test_no_threshold_is_better(data: st.DataObject) -> None:
    steps = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=1, max_size=4)
    lists = [data.draw(steps) for _ in range(data.draw(st.integers(2, 8)))]
    errors = [data.draw(st.none() | st.integers(0, len(step_scores) - 1)) for step_scores in lists]
    errors[:2] = [0, None]
    rows = [
        JudgedSolution(
            id=str(i), problem=f"p{i}", steps=("x",) * len(step_scores), first_error=errors[i]
        )
        for i, step_scores in enumerate(lists)
    ]
    scores = {str(i): step_scores for i, step_scores in enumerate(lists)}
    best = f1_at(rows, scores, find_best_threshold(rows, scores))
    assert best == pytest.approx(
        max(
            [
                f1_at(rows, scores, t)
                for t in (-1.0, 0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.95, 1.0, 2.0)
            ]
        )
    )


def test_a_threshold_between_neighbouring_floats() -> None:
    low, high = 0.5, float(np.nextafter(0.5, 1))
    assert (
        low
        < find_best_threshold(make_judged_solutions(0, None, steps=1), {"0": [low], "1": [high]})
        <= high
    )


def test_scores_are_calibrated_up_to_the_first_error() -> None:
    rows = make_judged_solutions(1, None, steps=3)
    scores = {"0": [0.9, 0.3, 0.0], "1": [0.9, 0.9, 0.9]}
    first_errors = {row.id: find_first_score_below(scores[row.id], 0.5) for row in rows}
    calibration_error = (
        measure_processbench({"s": rows}, {"s": first_errors}, scores={"s": scores}).splits["s"].ece
    )
    # Four sound steps have .9 and one wrong step has .3. Steps after the error are not judged.
    assert calibration_error is not None and calibration_error.value == pytest.approx(
        (4 * 0.1 + 0.3) / 5
    )
    assert measure_processbench({"s": rows}, {"s": first_errors}).splits["s"].ece is None
