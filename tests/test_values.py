from __future__ import annotations

import pytest

from mclabel.records import Counts
from mclabel.values import clopper_pearson, first_error, hard_label, num_trials, value

COUNTS = Counts(num_right=3, num_wrong=5, num_truncated=2, num_ungraded=7, num_tokens=99)


def test_truncated_rollouts_count_as_wrong_or_not_at_all() -> None:
    assert num_trials(COUNTS) == 10
    assert value(COUNTS) == pytest.approx(0.3)
    assert num_trials(COUNTS, truncated="exclude") == 8
    assert value(COUNTS, truncated="exclude") == pytest.approx(0.375)


def test_no_evidence_has_no_value() -> None:
    assert value(Counts(num_ungraded=4)) is None
    assert value(Counts(num_truncated=4), truncated="exclude") is None
    assert value(Counts(num_truncated=4)) == 0.0


@pytest.mark.parametrize(
    ("num_right", "num_trials", "low", "high"),
    [
        # 0 of n: the upper bound is 1 - 0.025 ** (1 / n).
        (0, 16, 0.0, 0.205907),
        (16, 16, 0.794093, 1.0),
        # Clopper and Pearson's published example and the textbook value for 8 of 10.
        (8, 10, 0.443905, 0.974789),
        (1, 1, 0.025, 1.0),
    ],
)
def test_clopper_pearson_literals(num_right: int, num_trials: int, low: float, high: float) -> None:
    assert clopper_pearson(num_right, num_trials) == pytest.approx((low, high), abs=1e-6)


def test_clopper_pearson_covers_at_every_true_value() -> None:
    from scipy.stats import binom

    for n in (4, 16):
        intervals = [clopper_pearson(k, n) for k in range(n + 1)]
        for percent in range(1, 100):
            p = percent / 100
            covered = sum(
                binom.pmf(k, n, p) for k, (low, high) in enumerate(intervals) if low <= p <= high
            )
            assert covered >= 0.95


def test_clopper_pearson_refuses_impossible_counts() -> None:
    with pytest.raises(ValueError, match="num_right=3, num_trials=2"):
        clopper_pearson(3, 2)
    with pytest.raises(ValueError, match="n >= 1"):
        clopper_pearson(0, 0)


def test_hard_label_rules() -> None:
    assert hard_label(0.0) is False
    assert hard_label(1 / 16) is True
    assert hard_label(None) is None
    assert hard_label(0.1, threshold=0.25, root_value=0.5) is False
    assert hard_label(0.1, threshold=0.25, root_value=0.2) is True


def test_first_error_skips_steps_without_a_verdict() -> None:
    assert first_error([True, None, False, True]) == 2
    assert first_error([True, None]) is None
