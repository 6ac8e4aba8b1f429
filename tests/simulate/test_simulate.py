"""The simulator compared with its given values, and pools compared with their source run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mclabel.core.records import Outcome
from mclabel.labeling.prefixes import mark_restating_steps, step_key
from mclabel.run.shards.labels import read_labels
from mclabel.run.shards.store import Store
from tests.benchmarks import simulate
from tests.benchmarks.simulation.measure import measure
from tests.benchmarks.simulation.profiles import PROFILES, resampled_cases, simulated_cases
from tests.benchmarks.simulation.replay import read_pool, replay
from tests.support.estimating import make
from tests.support.scripted_jobs import run_label_job, scripted_overrides, write_problems


@pytest.mark.parametrize("profile", PROFILES)
def test_rollouts_follow_the_values_and_cases_repeat(profile: str) -> None:
    cases = list(simulated_cases(profile, 40, seed=4))
    again = list(simulated_cases(profile, 40, seed=4))
    assert [c.paths for c in cases] == [c.paths for c in again]
    errors = []
    for case in cases:
        done = replay(make("fixed", case.paths, rollouts=64), case)
        for path, truth in zip(case.paths, case.truth, strict=True):
            assert truth is None or truth < path.num_steps
            assert truth is not None or path.outcome is Outcome.RIGHT
            errors += [done.counts[0][p].num_right / 64 - case.values[p] for p in path.prefixes]
    assert abs(np.mean(errors)) < 0.02


def test_intervals_hold_at_the_promised_rate_under_every_rule() -> None:
    for kind in ("fixed", "first_error", "bisect", "posterior"):
        settings = {"min_gain": 0.06} if kind == "posterior" else {}
        found = measure(
            lambda case, kind=kind, settings=settings: make(
                kind, case.paths, rollouts=32, **settings
            ),
            simulated_cases("recovery", 80, seed=9),
            intervals=True,
        )
        for rule in found.sources.values():
            assert rule.labels > 60
            assert rule.covered / rule.labels > 0.95
            assert rule.width / rule.fixed_width < 1.5
            if rule.values:
                assert abs(rule.error / rule.values) < 0.02


def test_a_pool_replays_the_run_it_was_made_by(tmp_path: Path) -> None:
    more = ["ray.address=none", "policy.max_tokens=1000"]
    more += ["estimator.kind=fixed", "estimator.rollouts=3", "estimator.root_rollouts=3"]
    run_label_job(scripted_overrides(write_problems(tmp_path, 6), tmp_path / "run", *more))
    store = Store(str(tmp_path / "run"))
    labels = {(r.problem.id, r.solution.sample_index): r for r in read_labels(store)}
    pool = read_pool(store, lambda row: None)
    assert len(pool) == 6
    for case in pool:
        done = replay(make("fixed", case.paths, rollouts=3), case)
        for index, (path, judgement) in enumerate(zip(case.paths, done.judgements, strict=True)):
            row = labels[case.id, index]
            assert judgement.hard == tuple(step.hard for step in row.steps)
            for step, prefix in zip(row.steps, path.prefixes, strict=False):
                assert step.counts == done.counts[0][prefix]
            assert sum(path.step_tokens) == len(row.solution.ids)
    assert all(case.group == "measured" for case in list(resampled_cases(pool, 5, seed=1)))


def test_the_tool_prints_figures_of_the_estimators_and_settings_that_it_is_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["first_error", "rollouts=3", "fixed"]
    monkeypatch.setattr("sys.argv", ["simulate", *words, "--problems=2", "--profile=hopeless"])
    simulate.main()
    [(profile, figures)] = json.loads(capsys.readouterr().out.splitlines()[-1]).items()
    assert profile == "hopeless" and list(figures) == [" ".join(words[:2]), "fixed"]
    assert 0 < figures[" ".join(words[:2])]["tokens"] < figures["fixed"]["tokens"]


@pytest.mark.parametrize(
    ("one", "other", "same"),
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
def test_step_keys(one: str, other: str, same: bool) -> None:
    assert (step_key(one) == step_key(other)) is same


def test_restating_steps_are_marked() -> None:
    problem = "Eva has 3 pens, Ben twice as many, and 1,000 pens cost $50."
    steps = {
        "Eva has 3 pens.": True,
        "Ben has twice as many.": True,
        "Ben has 2 * 3 = 6 pens.": False,
        "So 6 pens are Ben's, and 1000 cost $50.": True,
        "Together they have 9.": False,
        "3 = 3.0": False,
    }
    assert mark_restating_steps(problem, list(steps)) == tuple(steps.values())
