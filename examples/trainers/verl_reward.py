"""The grader as a reward function of verl.

    reward.custom_reward_function.path=examples/trainers/verl_reward.py

To install the grader, run `pip install .` in a clone of mclabel, in the environment of verl. This
changes no version of another package. The grader needs no server. docs/rl-trainers.md explains
rewards from a PRM.
"""

from __future__ import annotations

from typing import Any

from mclabel.answers import verdict_on
from mclabel.core.records import Verdict


def compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Score one completion. `score` is the reward; verl logs the means of the other values.

    verl accepts no None. So an unknown verdict has the reward 0, and `unknown` is then 1.
    """
    verdict = verdict_on(solution_str, ground_truth)
    right = float(verdict is Verdict.RIGHT)
    return {"score": right, "acc": right, "unknown": float(verdict is Verdict.UNKNOWN)}
