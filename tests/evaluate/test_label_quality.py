"""Quality of labels by hand, and against figures of scikit-learn."""

from __future__ import annotations

import pytest

from mclabel.core.records import Counts, Outcome
from mclabel.evaluate.labels.quality import cost_estimate, label_cost, label_quality
from tests.support.rows import row, step

FOUR = [step()] * 4


def test_by_hand() -> None:
    #            steps 0 1 2 3   labelled wrong   wrong in truth
    rows = [
        row("a", FOUR, 1),  #            1 2 3              2 3
        row("a", FOUR, 2, sample=1),  #    2 3              2 3
        row("b", FOUR, None, outcome=Outcome.RIGHT),  #       3, a right answer all the same
        row("b", FOUR, None, sample=1, outcome=Outcome.RIGHT),  # none
        row("c", FOUR, 3, outcome=Outcome.TRUNCATED),  # left out
    ]
    truth = {"a.0": 2, "a.1": 2, "b.0": 3, "b.1": None}
    found = label_quality(rows, lambda one: truth[one.solution.id])
    assert (found.num_problems, found.num_solutions, found.num_left_out) == (2, 4, 1)
    assert found.pass_at_1.value == 1 / 2
    assert found.wrong_steps.value == 5 / 16
    assert found.first_error_accuracy.value == 2 / 4
    assert found.first_error_accuracy_wrong.value == 1 / 3
    assert found.precision.value == 4 / 5
    assert found.recall.value == 4 / 5
    assert found.f1.value == pytest.approx(4 / 5)
    assert found.false_positive_rate.value == 1 / 11
    assert found.right_through_wrong.value == 1 / 2
    assert found.agreement.value == 14 / 16
    # By chance: (5 · 5 + 11 · 11) / 256. (14/16 - 146/256) / (1 - 146/256) = 78 / 110
    assert found.kappa.value == pytest.approx(78 / 110)


def test_undecided_is_not_right() -> None:
    unsure = [step(True), step(None), step(None)]
    rows = [
        row("a", unsure, None, outcome=Outcome.RIGHT),
        row("a", unsure, None, sample=1),
        row("b", FOUR, None, outcome=Outcome.RIGHT),
        row("b", FOUR, 1, sample=1),
    ]
    found = label_quality(rows, lambda one: 2 if one.solution.id == "a.1" else None)
    assert found.decided.value == 2 / 4
    assert found.first_error_accuracy_decided.value == 1 / 2
    assert found.first_error_accuracy.value == 1 / 4
    assert found.first_error_accuracy_wrong.value == 0


def test_no_errors_give_no_figures_of_errors() -> None:
    found = label_quality([row("a", FOUR, None, outcome=Outcome.RIGHT)], lambda one: None)
    assert found.first_error_accuracy.value == 1
    nothing = (
        found.first_error_accuracy_wrong,
        found.precision,
        found.recall,
        found.f1,
        found.kappa,
    )
    assert all(e.value is e.low is e.high is None for e in nothing)


def test_cost_counts_shared_prefixes_once() -> None:
    shared = step(prefix="x", counts=Counts(num_right=2, num_tokens=30))
    rows = [
        row("a", [shared, step(prefix="y", counts=Counts(num_wrong=1, num_tokens=10))], sample=0),
        row("a", [shared, step(prefix="z", counts=Counts(num_wrong=3, num_tokens=50))], sample=1),
        row("b", [step(prefix="w")], root=Counts(num_right=1, num_tokens=6)),
    ]
    cost = label_cost(rows)
    assert cost.tokens_per_solution == pytest.approx((30 + 10 + 50 + 6) / 3)
    assert cost.tokens_per_solution_unshared == pytest.approx((40 + 80 + 6) / 3)
    found = cost_estimate(rows)
    assert found.tokens_per_solution.value == cost.tokens_per_solution
    assert found.tokens_per_solution_unshared.value == cost.tokens_per_solution_unshared
    assert found.rollouts_per_solution.value == pytest.approx((2 + 1 + 3 + 1) / 3)
    # Resamples: problem a alone (90 / 2), b alone (6), and both.
    assert (found.tokens_per_solution.low, found.tokens_per_solution.high) == (6, 45)
    assert label_cost([]).tokens_per_solution == 0
