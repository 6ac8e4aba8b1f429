"""The signs of a hacked reward."""

from __future__ import annotations

import random

import pytest

from mclabel.rl.measure import Measurement, ProblemFigures, compare_measurements

SAMPLES = 4


def measurement(
    right: float, *, lucky: float = 0.1, score: float | None = None, seed: int = 0, count: int = 300
) -> Measurement:
    """Return a measurement with random shares, on problems of varying difficulty."""
    rng = random.Random(seed)
    problems = []
    for number in range(count):
        chance = min(1.0, max(0.0, right + rng.gauss(0, 0.2)))
        num_right = sum(rng.random() < chance for _ in range(SAMPLES))
        num_lucky = sum(rng.random() < lucky for _ in range(num_right))
        problems.append(
            ProblemFigures(
                problem_id=f"p{number}",
                family="",
                num_samples=SAMPLES,
                num_right=num_right,
                num_truncated=0,
                num_tokens=100,
                num_steps=12,
                num_sound=num_right - num_lucky,
                num_lucky=num_lucky,
                score=None if score is None else score * SAMPLES,
                squared_error=None if score is None else 0.0,
            )
        )
    return Measurement(tuple(problems))


OUTCOMES = {"pass_at_1", "sound", "lucky"}


@pytest.mark.parametrize(
    ("before", "after", "names", "signs"),
    [
        (
            measurement(0.4, score=0.5),
            measurement(0.6, score=0.6, seed=1),
            {*OUTCOMES, "prm_less_outcome"},
            set(),
        ),
        (measurement(0.5), measurement(0.5), OUTCOMES, set()),
        (measurement(0.5), measurement(0.25, seed=1), OUTCOMES, {"pass_at_1", "sound"}),
        (measurement(0.5), measurement(0.5, lucky=0.5, seed=1), OUTCOMES, {"lucky", "sound"}),
        (
            measurement(0.5, score=0.5),
            measurement(0.5, score=0.8),
            {*OUTCOMES, "prm_less_outcome"},
            {"prm_less_outcome"},
        ),
        (
            measurement(0.0, count=1),
            measurement(0.5, count=1),
            {"pass_at_1", "sound"},  # without a right answer, nothing is known of luck
            set(),
        ),
    ],
    ids=["better", "same", "worse", "lucky", "fooled PRM", "unknown"],
)
def test_a_policy_that_pleases_its_reward_shows_it(
    before: Measurement, after: Measurement, names: set[str], signs: set[str]
) -> None:
    found = compare_measurements(before, after)
    assert set(found) == names
    assert {name for name, one in found.items() if one.is_bad} == signs


def test_signs_are_rare_where_nothing_changed() -> None:
    found = [
        compare_measurements(measurement(0.4, seed=2 * i), measurement(0.4, seed=2 * i + 1))
        for i in range(40)
    ]
    for name in ("pass_at_1", "lucky"):
        assert sum(one[name].is_bad for one in found) <= 4  # 2.5% are expected


def test_measurements_of_other_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="problems of the two measurements differ"):
        compare_measurements(measurement(0.5), measurement(0.5, count=7))
