"""Error of step advantages, and the cost of their values, by the way of estimating.

The truth is the change of the value under very many rollouts. All ways estimate the same solutions.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from mclabel.checkers import make_checker
from mclabel.checkers.base import default_checker
from mclabel.core.stats.bootstrap import resample_weights, sums_estimate
from mclabel.domains.arith.problems import generate_problems
from mclabel.engines import PolicySettings, make_engine
from mclabel.labeling.config import LabelSettings
from mclabel.rl.groups import LivePolicy
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.cpu_executor import CpuExecutor
from tests.benchmarks.figures import numbers

POLICY = {
    "model": "arith:policy",
    "temperature": 0.8,
    "max_tokens": 200,
    "engine": {"kind": "hf", "max_live": 1024},
}
WAYS: dict[str, dict[str, Any]] = {
    "mc K=9, alone": {"kind": "fixed", "rollouts": 9, "root_rollouts": 9},
    "mc K=2": {"kind": "fixed", "rollouts": 2, "root_rollouts": 2},
    "shared states": {"kind": "outcome"},
    "posterior": {"kind": "posterior", "rollouts": 16},
    "posterior, 1 each": {
        "kind": "posterior", "rollouts": 16, "every": 1, "min_gain": 0.08
    },
}  # fmt: skip
"""Estimators by name. `alone` does not use the group's own solutions as free rollouts."""


def compare(num_problems: int, size: int, truth_rollouts: int) -> dict[str, dict[str, Any]]:
    """Estimate the values of groups in several ways.

    Returns:
        Figures of each way. `rmse`: root mean squared error of the step advantages, with a 95%
        interval over problems. `tokens`: tokens per solution that were sampled for values.
        `share_known`: share of the steps whose value was estimated.
    """

    async def run() -> dict[str, dict[str, Any]]:
        policy = make_engine(PolicySettings.model_validate(POLICY), seed=0)
        await policy.start()
        executor = CpuExecutor()
        live = LivePolicy(policy, make_checker(default_checker()), executor)
        problems = generate_problems(num_problems, seed=4242, split="test")
        groups = await live.groups(problems, size, seed=1)

        async def values(estimator: dict[str, Any], seed: int, alone: bool) -> list[GroupValues]:
            settings = LabelSettings.model_validate({"estimator": estimator})
            return await LiveValues(live, settings, free_rollouts=not alone).estimate(
                groups, seed=seed
            )

        many = {"kind": "fixed", "rollouts": truth_rollouts, "root_rollouts": truth_rollouts}
        truth = await values(many, 99, True)
        found = {
            name: _figures(truth, await values(how, 1000 + number, name.endswith("alone")))
            for number, (name, how) in enumerate(WAYS.items())
        }
        await policy.close()
        executor.close()
        return found

    return asyncio.run(run())


def _advantages(found: GroupValues) -> list[list[float]]:
    """Return the advantages of each solution's steps.

    A step without a value has the advantage of its segment, which ends at the next known value.
    """
    result = []
    for own in found.solutions:
        row: list[float] = []
        first, *others = own.values
        before, num_open = first, 0
        for after in others:
            num_open += 1
            if after is not None:
                row += [after - (after if before is None else before)] * num_open
                before, num_open = after, 0
        result.append(row)
    return result


def _figures(truth: list[GroupValues], found: list[GroupValues]) -> dict[str, Any]:
    errors = []
    for true, own in zip(truth, found, strict=True):
        pairs = zip(_advantages(true), _advantages(own), strict=True)
        rows = [np.subtract(b, a) for a, b in pairs if len(a)]
        errors.append(np.concatenate(rows) if rows else np.zeros(0))
    table = np.array([[(e**2).sum(), len(e)] for e in errors])
    weights = resample_weights(len(table), 0)
    squares = sums_estimate(table, weights, lambda sums: np.sqrt(sums[..., 0] / sums[..., 1]))
    num = sum(len(one.solutions) for one in found)
    known = [v is not None for one in found for own in one.solutions for v in own.values[1:]]
    return {
        "rmse": numbers(squares),
        "tokens": round(sum(one.num_tokens for one in found) / num, 1),
        "share_known": round(float(np.mean(known)), 4),
    }
