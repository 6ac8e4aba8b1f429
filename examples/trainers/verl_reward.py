"""The grader as a reward function of verl.

    reward.custom_reward_function.path=examples/trainers/verl_reward.py

In the environment of verl `pip install .` in a clone of mclabel adds the grader and changes no
version. No server is needed; for rewards of a PRM see docs/rl-trainers.md.
"""

from __future__ import annotations

from typing import Any

from mclabel.answers import verdict_on
from mclabel.core.records import Verdict


def compute_score(
    data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any = None, **_: Any
) -> dict[str, float]:
    """Score one completion: `score` is the reward, verl logs the means of the others.

    verl takes no None: what is undecided has the reward 0, and its share is `unknown`.
    """
    verdict = verdict_on(solution_str, ground_truth)
    right = float(verdict is Verdict.RIGHT)
    return {"score": right, "acc": right, "unknown": float(verdict is Verdict.UNKNOWN)}
