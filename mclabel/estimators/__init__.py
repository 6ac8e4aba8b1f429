"""Which prefix to roll out next, and when to stop: pure state machines, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from mclabel.estimators.base import ROOT, Estimator, Judgement, SolutionPath
from mclabel.estimators.bisect import BisectEstimator
from mclabel.estimators.fixed import FixedEstimator
from mclabel.estimators.outcome import OutcomeEstimator
from mclabel.values import TruncatedPolicy

EstimatorKind = Literal["fixed", "bisect", "outcome"]

__all__ = [
    "ROOT",
    "BisectEstimator",
    "Estimator",
    "EstimatorKind",
    "FixedEstimator",
    "Judgement",
    "OutcomeEstimator",
    "SolutionPath",
    "make_estimator",
]


def make_estimator(
    kind: EstimatorKind,
    paths: Sequence[SolutionPath],
    *,
    rollouts: int,
    root_rollouts: int = 0,
    batch: int = 4,
    truncated: TruncatedPolicy = "wrong",
) -> Estimator:
    """The estimator of one problem.

    Args:
        kind: `fixed`, `bisect` or `outcome`.
        paths: the problem's solutions.
        rollouts: of each prefix (`fixed`), or at most of each probed one (`bisect`).
        root_rollouts: of the bare problem (`fixed`).
        batch: rollouts started together in a probe (`bisect`).
        truncated: what a rollout cut by its length counts as.
    """
    if kind == "fixed":
        return FixedEstimator(
            paths, rollouts=rollouts, root_rollouts=root_rollouts, truncated=truncated
        )
    if kind == "outcome":
        return OutcomeEstimator(paths)
    return BisectEstimator(paths, rollouts=rollouts, batch=batch, truncated=truncated)
