"""Coverage of intervals by another run's rollouts: by hand, and for known values."""

from __future__ import annotations

import numpy as np
import pytest

from mclabel.core.records import Counts, Outcome, Rollout
from mclabel.evaluate.labels.calibration import check_intervals, count_independent_rollouts
from tests.support.rows import row, step


def rollout(prefix: str, index: int, text: str, outcome: Outcome = Outcome.RIGHT) -> Rollout:
    return Rollout(
        problem_id="a",
        prefix_id=prefix,
        index=index,
        seed=index,
        text=text,
        num_tokens=1,
        finish_reason="stop",
        prediction=None,
        outcome=outcome,
    )


def test_by_hand() -> None:
    shared = step(prefix="x", low=0.5, high=0.9)
    rows = [
        row("a", [shared, step(prefix="y", low=0.0, high=0.2)]),
        row("a", [shared, step(prefix="z", low=0.0, high=1.0, source="posterior")], sample=1),
        row(
            "b",
            [step(prefix="not in the reference", low=0.0, high=1.0), step(prefix="no interval")],
        ),
    ]
    reference = {
        "x": Counts(num_right=60, num_wrong=40),  # .6 lies in [.5, .9]
        "y": Counts(num_right=3, num_wrong=5, num_truncated=2),  # .3 does not lie in [0, .2]
        "z": Counts(num_right=1),
        "unused": Counts(num_right=1),
    }
    checks = check_intervals(rows[:2], reference)
    assert list(checks) == ["all", "fixed", "posterior"]
    every, fixed = checks["all"], checks["fixed"]
    assert (fixed.num_intervals, fixed.holds_share.value) == (2, 1 / 2)
    assert (every.num_intervals, every.holds_share.value, every.width.value) == pytest.approx(
        (3, 2 / 3, (0.4 + 0.2 + 1.0) / 3)
    )
    assert every.reference_rollouts == pytest.approx((100 + 10 + 1) / 3)
    assert checks["posterior"].coverage.value == 1  # the interval covers [0, 1]
    assert check_intervals(rows[2:], {}) == {}
    assert {n: check.num_unchecked for n, check in check_intervals(rows, reference).items()} == {
        "all": 1,
        "fixed": 1,
        "posterior": 0,
    }


def test_chance_of_the_value_by_integrating_the_posterior() -> None:
    own_counts, other_counts = Counts(num_right=2, num_wrong=2), Counts(num_right=5, num_wrong=3)
    check = check_intervals(
        [row("a", [step(prefix="x", low=0.3, high=0.7, counts=own_counts)])], {"x": other_counts}
    )["all"]
    p = np.linspace(0, 1, 200_001)[1:-1]
    density = p ** (7 - 0.5) * (1 - p) ** (5 - 0.5)  # 7 right and 5 wrong under Jeffreys' prior
    assert check.coverage.value == pytest.approx(
        (density[(p >= 0.3) & (p <= 0.7)].sum() / density.sum()), abs=1e-5
    )


def test_rollouts_of_both_runs_are_no_evidence() -> None:
    own_rollouts = [rollout("x", 0, "one"), rollout("x", 1, "two")]
    other_rollouts = [
        rollout("x", 0, "one"),
        rollout("x", 1, "another draw", Outcome.WRONG),
        rollout("x", 2, "three", Outcome.TRUNCATED),
        rollout("y", 0, "one", Outcome.UNGRADED),
    ]
    assert count_independent_rollouts(own_rollouts, other_rollouts) == {
        "x": Counts(num_wrong=1, num_truncated=1),
        "y": Counts(num_ungraded=1),
    }
    assert count_independent_rollouts(other_rollouts, other_rollouts) == {}
