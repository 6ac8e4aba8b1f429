"""Step values under the current policy, on an engine with known exact values."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from mclabel.checkers import make_checker
from mclabel.checkers.base import default_checker
from mclabel.core.records import Outcome, Problem, Solution
from mclabel.engines import PolicySettings, make_engine
from mclabel.engines.scripted import WORDS
from mclabel.labeling.config import LabelSettings
from mclabel.rl.groups import Group, LivePolicy, reward_solution
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.cpu_executor import CpuExecutor

NUM_STEPS = 3
SIZE = 6


def problems(number: int) -> list[Problem]:
    return [Problem(id=f"p{i}", text=f"{i}? [answer {i}]", answer=f"{i}") for i in range(number)]


def estimated(
    number: int,
    estimator: dict[str, Any],
    *,
    engine: dict[str, Any] | None = None,
    **how: Any,
) -> tuple[list[Group], list[GroupValues]]:
    """Sample groups and estimate the values of their steps."""
    scripted = {"kind": "scripted", "num_steps": NUM_STEPS, **(engine or {})}

    async def run() -> tuple[list[Group], list[GroupValues]]:
        policy = make_engine(PolicySettings.model_validate({"engine": scripted}), seed=0)
        executor = CpuExecutor()
        await policy.start()
        live = LivePolicy(policy, make_checker(default_checker()), executor)
        groups = await live.groups(problems(number), SIZE, seed=1)
        labels = LabelSettings.model_validate({"estimator": estimator})
        values = await LiveValues(live, labels, **how).estimate(groups, seed=2)
        executor.close()
        return groups, values

    return asyncio.run(run())


def true_values(solution: Solution) -> list[float]:
    """Return the true value of the problem alone, and after each step but the last."""
    root = sum(share * factor for share, factor in WORDS.values())
    found, chance = [root**NUM_STEPS], 1.0
    for number, step in enumerate(solution.steps[:-1], start=1):
        chance *= next(factor for word, (_, factor) in WORDS.items() if word in step.text)
        found.append(chance * root ** (NUM_STEPS - number))
    return found


def errors(groups: list[Group], values: list[GroupValues]) -> np.ndarray:
    """Return the estimated minus the true values of all states with an estimate."""
    return np.array(
        [
            value - true
            for group, found in zip(groups, values, strict=True)
            for solution, own in zip(group.solutions, found.solutions, strict=True)
            for value, true in zip(own.values[:-1], true_values(solution), strict=True)
            if value is not None
        ]
    )


@pytest.mark.slow
@pytest.mark.parametrize("free_rollouts", [True, False])
def test_shares_are_unbiased_and_cost_what_they_say(free_rollouts: bool) -> None:
    groups, values = estimated(
        150, {"kind": "fixed", "rollouts": 4, "root_rollouts": 1}, free_rollouts=free_rollouts
    )
    found = errors(groups, values)
    by_group = np.array([errors([g], [v]).mean() for g, v in zip(groups, values, strict=True)])
    assert abs(by_group.mean()) < 4 * by_group.std() / len(by_group) ** 0.5
    assert found.std() < 0.3
    prefixes = {
        (group.problem.id, solution.ids[: step.end])
        for group in groups
        for solution in group.solutions
        for step in solution.steps[:-1]
    }
    assert sum(one.num_rollouts for one in values) == 4 * len(prefixes) + len(groups)
    assert all(one.num_tokens > 0 for one in values)


def test_free_rollouts_make_values_better() -> None:
    estimator = {"kind": "fixed", "rollouts": 2}
    alone = errors(*estimated(40, {**estimator, "root_rollouts": 1}, free_rollouts=False))
    together = errors(*estimated(40, estimator))
    assert (together**2).mean() < (alone**2).mean()


def test_an_outcome_is_no_evidence_of_its_own_solution() -> None:
    """Solutions that differ only in outcome use each other's outcome, and never their own."""
    groups, values = estimated(40, {"kind": "outcome"})
    for group, found in zip(groups, values, strict=True):
        rewards = [reward_solution(one) for one in group.solutions]
        for number, own in enumerate(found.solutions):
            others = rewards[:number] + rewards[number + 1 :]
            assert own.values[0] == pytest.approx(np.mean(others))
            assert own.values[-1] == rewards[number]


@pytest.mark.slow
def test_a_posterior_costs_less() -> None:
    groups, fixed = estimated(60, {"kind": "fixed", "rollouts": 8})
    _, found = estimated(60, {"kind": "posterior", "rollouts": 8})
    assert sum(o.num_tokens for o in found) < 0.7 * sum(o.num_tokens for o in fixed)
    values = [own.values for one in found for own in one.solutions]
    assert all(value is not None and 0 <= value <= 1 for own in values for value in own[1:])
    assert np.sqrt((errors(groups, found) ** 2).mean()) < 0.35


def test_cut_and_empty_solutions_have_the_value_of_their_reward() -> None:
    groups, values = estimated(20, {"kind": "fixed", "rollouts": 2}, engine={"truncate_rate": 0.5})
    outcomes = [one.outcome for group in groups for one in group.solutions]
    assert outcomes.count(Outcome.TRUNCATED) > 20
    for group, found in zip(groups, values, strict=True):
        for solution, own in zip(group.solutions, found.solutions, strict=True):
            assert len(own.values) == len(solution.steps) + 1
            assert own.values[-1] == reward_solution(solution)
