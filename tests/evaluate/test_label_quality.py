"""Quality of labels compared with values by hand and with results of scikit-learn."""

from __future__ import annotations

import pytest

from mclabel.core.records import Counts, Outcome
from mclabel.evaluate.labels.quality import (
    compute_label_cost,
    estimate_label_cost,
    measure_label_quality,
)
from tests.support.rows import row, step

FOUR = [step()] * 4


def test_by_hand() -> None:
    #            steps 0 1 2 3   labelled wrong   wrong in truth
    rows = [
        row("a", FOUR, 1),  #            1 2 3              2 3
        row("a", FOUR, 2, sample=1),  #    2 3              2 3
        row("b", FOUR, None, outcome=Outcome.RIGHT),  #       3, with a right answer
        row("b", FOUR, None, sample=1, outcome=Outcome.RIGHT),  # none
        row("c", FOUR, 3, outcome=Outcome.TRUNCATED),  # left out
    ]
    truth = {"a.0": 2, "a.1": 2, "b.0": 3, "b.1": None}
    quality = measure_label_quality(rows, lambda labelled: truth[labelled.solution.id])
    assert (quality.num_problems, quality.num_solutions, quality.num_left_out) == (2, 4, 1)
    expected = {
        "pass_at_1": 1 / 2,
        "wrong_steps": 5 / 16,
        "first_error_accuracy": 2 / 4,
        "first_error_accuracy_wrong": 1 / 3,
        "precision": 4 / 5,
        "recall": 4 / 5,
        "f1": 4 / 5,
        "false_positive_rate": 1 / 11,
        "right_through_wrong": 1 / 2,
        "agreement": 14 / 16,
        # By chance: (5 · 5 + 11 · 11) / 256. (14/16 - 146/256) / (1 - 146/256) = 78 / 110
        "kappa": 78 / 110,
    }
    assert {name: getattr(quality, name).value for name in expected} == pytest.approx(expected)


def test_undecided_is_not_right() -> None:
    unsure = [step(True), step(None), step(None)]
    rows = [
        row("a", unsure, None, outcome=Outcome.RIGHT),
        row("a", unsure, None, sample=1),
        row("b", FOUR, None, outcome=Outcome.RIGHT),
        row("b", FOUR, 1, sample=1),
    ]
    quality = measure_label_quality(
        rows, lambda labelled: 2 if labelled.solution.id == "a.1" else None
    )
    expected = {
        "decided": 2 / 4,
        "first_error_accuracy_decided": 1 / 2,
        "first_error_accuracy": 1 / 4,
        "first_error_accuracy_wrong": 0,
    }
    assert {name: getattr(quality, name).value for name in expected} == expected


def test_no_errors_give_no_figures_of_errors() -> None:
    quality = measure_label_quality(
        [row("a", FOUR, None, outcome=Outcome.RIGHT)], lambda labelled: None
    )
    assert quality.first_error_accuracy.value == 1
    assert all(
        e.value is e.low is e.high is None
        for e in (
            (
                quality.first_error_accuracy_wrong,
                quality.precision,
                quality.recall,
                quality.f1,
                quality.kappa,
            )
        )
    )


def test_cost_counts_shared_prefixes_once() -> None:
    shared = step(prefix="x", counts=Counts(num_right=2, num_tokens=30))
    rows = [
        row("a", [shared, step(prefix="y", counts=Counts(num_wrong=1, num_tokens=10))], sample=0),
        row("a", [shared, step(prefix="z", counts=Counts(num_wrong=3, num_tokens=50))], sample=1),
        row("b", [step(prefix="w")], root=Counts(num_right=1, num_tokens=6)),
    ]
    cost, estimate = compute_label_cost(rows), estimate_label_cost(rows)
    expected = ((30 + 10 + 50 + 6) / 3, (40 + 80 + 6) / 3)
    assert (cost.tokens_per_solution, cost.tokens_per_solution_unshared) == pytest.approx(expected)
    tokens = estimate.tokens_per_solution
    assert (tokens.value, estimate.tokens_per_solution_unshared.value) == pytest.approx(expected)
    assert estimate.rollouts_per_solution.value == pytest.approx((2 + 1 + 3 + 1) / 3)
    # The resamples are problem a alone (90 / 2), b alone (6), and both.
    assert (tokens.low, tokens.high) == (6, 45)
    assert compute_label_cost([]).tokens_per_solution == 0
