"""Intervals of estimators in simulation, the simulation tool, and keys of steps."""

from __future__ import annotations

import pytest

from mclabel.labeling.prefixes import compute_step_factors, make_step_key
from tests.benchmarks.simulation.measure import measure
from tests.benchmarks.simulation.profiles import simulated_cases
from tests.support.estimating import make


def test_intervals_hold_at_the_promised_rate_under_every_rule() -> None:
    for kind in ("fixed", "first_error", "bisect", "posterior"):
        settings = {"min_gain": 0.06} if kind == "posterior" else {}
        coverage = measure(
            lambda case, kind=kind, settings=settings: make(
                kind, case.paths, rollouts=32, **settings
            ),
            simulated_cases("recovery", 80, seed=9),
            intervals=True,
        )
        for rule in coverage.sources.values():
            assert rule.labels > 60
            assert rule.covered / rule.labels > 0.95
            assert rule.width / rule.fixed_width < 1.5
            if rule.values:
                assert abs(rule.error / rule.values) < 0.02


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("Ada has 3 * 4 = 12 pens.\n", "So that makes 12 pens (4 times 3).", True),
        ("Ada has 3 * 4 = 12 pens.", "Ada has 3 + 4 = 7 pens.", False),
        ("The answer is \\boxed{1,200}.", "$\\boxed{1200.0}$ it is", True),
        ("The answer is \\boxed{12}.", "Ada has 12 pens.", False),
        ("It cost 1,200 dollars.", "It cost 1200 dollars", True),
        ("Let x be odd.", "let X be odd", True),
        ("Let x be odd.", "Let x be even.", False),
        ("Half is 0.5.", "Half is 1/2.", True),
        ("Ada has 12 + 5 = 17 pens.\n", "- Ada has: 17 pens (5 + 12)", True),
        ("Ada has 12 + 5 = 17 pens.\n", "Next, 12 plus 5 gives 17.", True),
        ("The answer is \\boxed{7}.", "That makes **7** in all: \\boxed{7.0}", True),
        ("The answer is \\boxed{7}.", "\\boxed{\\text{7}} is the answer", True),
    ],
)
def test_step_keys(first: str, second: str, same: bool) -> None:
    assert (make_step_key(first) == make_step_key(second)) is same


def test_steps_that_restate_or_repeat_have_small_factors() -> None:
    problem = "Eva has 3 pens, Ben twice as many, and 1,000 pens cost $50."
    steps = {
        "Eva has 3 pens.": 0.1,
        "Ben has twice as many.": 0.1,
        "Ben has 2 * 3 = 6 pens.": 1,
        "Therefore Ben bought 6 of the 50.": 0.3,
        "So 6 pens are Ben's, and 1000 cost $50.": 0.3,
        "Together they have 9.": 1,
        "3 = 3.0": 1,
    }
    assert compute_step_factors(problem, list(steps)) == tuple(steps.values())
