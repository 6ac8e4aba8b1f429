"""Which prefix to roll out next, and when to stop: pure state machines, chosen by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mclabel.estimators.base import ROOT, Estimator, Follow, Judgement, SolutionPath, Told
from mclabel.estimators.bisect import BisectEstimator
from mclabel.estimators.first_error import FirstErrorEstimator
from mclabel.estimators.fixed import FixedEstimator
from mclabel.estimators.outcome import OutcomeEstimator
from mclabel.estimators.sequential import SequentialEstimator
from mclabel.values import TruncatedPolicy

EstimatorKind = Literal["fixed", "first_error", "bisect", "sequential", "outcome"]

__all__ = [
    "ROOT",
    "BisectEstimator",
    "Estimator",
    "EstimatorKind",
    "EstimatorSettings",
    "FirstErrorEstimator",
    "FixedEstimator",
    "Follow",
    "Judgement",
    "OutcomeEstimator",
    "SequentialEstimator",
    "SolutionPath",
    "Told",
    "make_estimator",
]


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings:
    """An estimator by name, and its parameters; those of others have no effect."""

    kind: EstimatorKind
    rollouts: int = 16
    """Of every prefix (`fixed`), of every one reached (`first_error`), or at most of one."""
    root_rollouts: int = 0
    """Of the bare problem (`fixed`)."""
    batch: int = 4
    """Rollouts of a prefix that are started together, where their number is not fixed."""
    threshold: float = 0.25
    """Of a wrong step's value relative to the bare problem's (`sequential`)."""
    width: float = 0.25
    """Of an interval that is narrow enough (`sequential`)."""
    truncated: TruncatedPolicy = "wrong"
    """What a rollout cut by its length counts as."""


def make_estimator(settings: EstimatorSettings, paths: Sequence[SolutionPath]) -> Estimator:
    """The estimator of one problem, whose solutions are `paths`."""
    cap, batch, truncated = settings.rollouts, settings.batch, settings.truncated
    if settings.kind == "outcome":
        return OutcomeEstimator(paths)
    if settings.kind == "fixed":
        return FixedEstimator(
            paths, rollouts=cap, root_rollouts=settings.root_rollouts, truncated=truncated
        )
    if settings.kind == "first_error":
        return FirstErrorEstimator(paths, rollouts=cap, truncated=truncated)
    if settings.kind == "bisect":
        return BisectEstimator(paths, rollouts=cap, batch=batch, truncated=truncated)
    return SequentialEstimator(
        paths,
        rollouts=cap,
        batch=batch,
        threshold=settings.threshold,
        width=settings.width,
        truncated=truncated,
    )
