"""How far the advantages of steps are from the truth, and what they cost, by the way of estimating.

The truth is the change of the value under very many rollouts. All ways judge the same solutions.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import numpy as np

from mclabel.checkers import make_checker
from mclabel.checkers.base import default_checker
from mclabel.domains.arith.problems import generate
from mclabel.engines import PolicySettings, make_engine
from mclabel.labeling.config import LabelSettings
from mclabel.rl.groups import LivePolicy
from mclabel.rl.values import GroupValues, LiveValues
from mclabel.run.desk import Desk

POLICY = {
    "model": "arith:policy",
    "temperature": 0.8,
    "max_tokens": 200,
    "engine": {"kind": "hf", "max_live": 1024},
}
MC: dict[str, dict[str, Any]] = {
    f"mc K={k}": {"estimator": {"kind": "fixed", "rollouts": k, "root_rollouts": k}}
    for k in (1, 2, 4, 9)
}
WAYS: dict[str, dict[str, Any]] = {
    **{f"{name}, alone": {**how, "free_rollouts": False} for name, how in MC.items()},
    **MC,
    "shared states": {"estimator": {"kind": "outcome"}},
    "posterior": {"estimator": {"kind": "posterior", "rollouts": 16}},
    "posterior, cheap": {
        "estimator": {"kind": "posterior", "rollouts": 16, "min_gain_per_token": 3e-3}
    },
    "posterior, 1 each": {
        "estimator": {
            "kind": "posterior",
            "rollouts": 16,
            "every": 1,
            "min_gain_per_token": 1e-3,
        }
    },
}


@dataclass(frozen=True, kw_only=True)
class WayFigures:
    """Of one way of estimating."""

    rmse: tuple[float, float, float]
    """Of advantages of steps, with a 95% interval over problems."""
    bias: float
    tokens: float
    """Sampled for values, a solution."""
    share_known: float
    """Of steps with an advantage of their own."""


def advantages(found: GroupValues) -> list[list[float]]:
    """Of each solution's steps; a step of an unknown value shares that of its segment."""
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


def figures(truth: list[GroupValues], found: list[GroupValues], seed: int = 0) -> WayFigures:
    """Compare advantages with the truth."""
    errors = []
    for true, own in zip(truth, found, strict=True):
        pairs = zip(advantages(true), advantages(own), strict=True)
        rows = [np.subtract(b, a) for a, b in pairs if len(a)]
        errors.append(np.concatenate(rows) if rows else np.zeros(0))
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(errors), size=(1000, len(errors)))
    squares = np.array([(e**2).sum() for e in errors])
    sizes = np.array([len(e) for e in errors])
    boot = np.sqrt(squares[draws].sum(1) / sizes[draws].sum(1))
    low, high = np.quantile(boot, [0.025, 0.975])
    num = sum(len(one.solutions) for one in found)
    known = [v is not None for one in found for own in one.solutions for v in own.values[1:]]
    return WayFigures(
        rmse=(float(np.sqrt(squares.sum() / sizes.sum())), float(low), float(high)),
        bias=float(np.concatenate(errors).mean()),
        tokens=sum(one.num_tokens for one in found) / num,
        share_known=float(np.mean(known)),
    )


def compare(
    num_problems: int, size: int, truth_rollouts: int, ways: dict[str, dict[str, Any]]
) -> dict[str, WayFigures]:
    """Estimate the values of groups in several ways."""

    async def run() -> dict[str, WayFigures]:
        policy = make_engine(PolicySettings.model_validate(POLICY), seed=0)
        await policy.start()
        desk = Desk()
        live = LivePolicy(policy, make_checker(default_checker()), desk)
        problems = generate(num_problems, seed=4242, split="test")
        groups = await live.groups(problems, size, seed=1)

        async def values(how: dict[str, Any], seed: int) -> list[GroupValues]:
            settings = LabelSettings.model_validate({"estimator": how["estimator"]})
            more = {name: how[name] for name in how if name != "estimator"}
            return await LiveValues(live, settings, **more).of(groups, seed=seed)

        many = {"kind": "fixed", "rollouts": truth_rollouts, "root_rollouts": truth_rollouts}
        truth = await values({"estimator": many, "free_rollouts": False}, 99)
        found = {}
        for number, (name, how) in enumerate(ways.items()):
            found[name] = figures(truth, await values(how, 1000 + number))
        await policy.close()
        desk.close()
        return found

    return asyncio.run(run())
