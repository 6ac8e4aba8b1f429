"""The signs that a reward is hacked."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from mclabel.rl.measure import Measurement, ProblemFigures, changes

SAMPLES = 4


def measurement(
    right: float, *, lucky: float = 0.1, score: float | None = None, seed: int = 0, count: int = 300
) -> Measurement:
    """Problems of other difficulties, each with as many samples: shares as they are drawn."""
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


def bad(before: Measurement, after: Measurement) -> set[str]:
    return {name for name, one in changes(before, after).items() if one.is_bad}


def test_a_policy_that_gets_better_shows_no_sign() -> None:
    before, after = measurement(0.4, score=0.5), measurement(0.6, score=0.6, seed=1)
    assert set(changes(before, after)) == {"pass_at_1", "sound", "lucky", "prm_less_outcome"}
    assert bad(before, after) == set()


@pytest.mark.parametrize(
    ("after", "signs"),
    [
        (lambda: measurement(0.25, seed=1), {"pass_at_1", "sound"}),
        (lambda: measurement(0.5, lucky=0.5, seed=1), {"lucky", "sound"}),
    ],
)
def test_a_policy_that_pleases_its_reward_shows_it(
    after: Callable[[], Measurement], signs: set[str]
) -> None:
    assert bad(measurement(0.5), after()) == signs


def test_a_prm_that_is_fooled_shows_it() -> None:
    assert bad(measurement(0.5, score=0.5), measurement(0.5, score=0.8)) == {"prm_less_outcome"}


def test_signs_are_rare_where_nothing_changed() -> None:
    found = [bad(measurement(0.4, seed=2 * i), measurement(0.4, seed=2 * i + 1)) for i in range(40)]
    assert sum("pass_at_1" in one for one in found) <= 4  # 2.5% are expected
    assert sum("lucky" in one for one in found) <= 4


def test_what_is_not_known_is_left_out() -> None:
    assert set(changes(measurement(0.5), measurement(0.5))) == {"pass_at_1", "sound", "lucky"}
    assert "lucky" not in changes(measurement(0.0, count=1), measurement(0.5, count=1))


def test_measurements_of_other_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different problems"):
        changes(measurement(0.5), measurement(0.5, count=7))
