from __future__ import annotations

from typing import Literal

import pytest

from mclabel.core.records import Counts
from mclabel.core.stats.intervals import stop_at_first_success
from mclabel.core.stats.values import (
    clopper_pearson,
    compute_advantages,
    count_trials,
    estimate_after_early_stop,
    estimate_anytime,
    estimate_fixed,
    estimate_root_value,
    estimate_value,
    find_first_error,
    is_recoverable,
)

COUNTS = Counts(num_right=3, num_wrong=5, num_truncated=2, num_ungraded=7, num_tokens=99)


@pytest.mark.parametrize(
    ("counts", "truncated", "trials", "expected"),
    [
        (COUNTS, "wrong", 10, pytest.approx(0.3)),
        (COUNTS, "exclude", 8, pytest.approx(0.375)),
        (Counts(num_ungraded=4), "wrong", 0, None),
        (Counts(num_truncated=4), "exclude", 0, None),
        (Counts(num_truncated=4), "wrong", 4, 0.0),
    ],
)
def test_truncated_rollouts_count_as_wrong_or_not_at_all(
    counts: Counts, truncated: Literal["wrong", "exclude"], trials: int, expected: object
) -> None:
    assert count_trials(counts, truncated=truncated) == trials
    assert estimate_value(counts, truncated=truncated) == expected


@pytest.mark.parametrize(
    ("num_right", "num_trials", "low", "high"),
    [
        # For 0 of n, the upper bound is 1 - 0.025 ** (1 / n).
        (0, 16, 0.0, 0.205907),
        (16, 16, 0.794093, 1.0),
        # Clopper and Pearson's published example, and the textbook value for 8 of 10.
        (8, 10, 0.443905, 0.974789),
        (1, 1, 0.025, 1.0),
    ],
)
def test_clopper_pearson_literals(num_right: int, num_trials: int, low: float, high: float) -> None:
    assert clopper_pearson(num_right, num_trials) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong", "chance", "expected"),
    [
        (0, 0, 0.0, None),
        (0, 16, 0.0, False),
        (1, 15, 0.0, True),
        (4, 0, 0.5, None),  # four right guesses have a chance of 1/16
        (0, 16, 0.5, False),
        (11, 5, 0.5, False),  # the chance of at least as many by guessing is .105
        (12, 4, 0.5, True),  # .038
        (1, 15, 0.01, False),  # .149
        (2, 14, 0.01, True),  # .011
    ],
)
def test_a_policy_recovers_where_more_is_right_than_by_guessing(
    right: int, wrong: int, chance: float, expected: bool | None
) -> None:
    assert is_recoverable(Counts(num_right=right, num_wrong=wrong), chance=chance) is expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([True, False, None, True], 1),
        ([True, None, False, True], None),
        ([True, None], None),
        ([], None),
    ],
)
def test_a_first_error_is_none_where_an_earlier_step_has_no_verdict(
    verdicts: list[bool | None], expected: int | None
) -> None:
    assert find_first_error(verdicts) == expected


def test_estimates_by_rule() -> None:
    fixed = estimate_fixed(Counts(num_right=8, num_wrong=2))
    assert fixed.value == pytest.approx(0.8)
    assert (fixed.low, fixed.high) == pytest.approx((0.443905, 0.974789), abs=1e-6)
    assert estimate_fixed(Counts(num_ungraded=3)).low is None
    rule = stop_at_first_success(batch=1, cap=4)
    stopped = estimate_after_early_stop(Counts(num_right=1, num_wrong=1), rule)
    # Two or more draws were needed: 1 - p >= .025. At most two: 1 - (1 - p) ** 2 >= .025.
    assert (stopped.low, stopped.high) == pytest.approx((0.012579, 0.975), abs=1e-3)
    off = estimate_after_early_stop(Counts(num_right=1, num_wrong=1, num_ungraded=1), rule)
    assert stopped.value is off.value is None and off.low is not None
    assert off == estimate_anytime(Counts(num_right=1, num_wrong=1), horizon=4)
    assert estimate_anytime(Counts(num_ungraded=1), horizon=4, mean=0.5).mean == 0.5


def test_advantage() -> None:
    assert compute_advantages([0.8, 0.2, 0.0, 0.0, None, 0.5], 0.4) == pytest.approx(
        [0.4, -0.6, -0.2, 0.0, None, None]
    )
    assert compute_advantages([0.3], None) == [None]


def test_root_value_takes_rollouts_and_siblings_together() -> None:
    root, siblings = Counts(num_right=1, num_wrong=3), Counts(num_right=1, num_truncated=1)
    assert estimate_root_value(root, siblings) == pytest.approx(2 / 6)
    assert estimate_root_value(root, siblings, truncated="exclude") == pytest.approx(2 / 5)
    assert estimate_root_value(Counts(), Counts(num_ungraded=2)) is None
