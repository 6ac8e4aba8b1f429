"""Which prefix to roll out next, and when to stop: pure state machines, chosen by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from mclabel.estimators.base import ROOT, Estimator, Follow, Judgement, SolutionPath, Told
from mclabel.estimators.bisect import BisectEstimator
from mclabel.estimators.first_error import FirstErrorEstimator
from mclabel.estimators.fixed import FixedEstimator
from mclabel.estimators.outcome import OutcomeEstimator
from mclabel.estimators.posterior.estimator import PosteriorEstimator, think_together
from mclabel.estimators.posterior.learner import PriorLearner
from mclabel.estimators.posterior.priors import Priors, wide_priors
from mclabel.estimators.sequential import SequentialEstimator
from mclabel.estimators.tree import TreeEstimator
from mclabel.stats.values import TruncatedPolicy

EstimatorKind = Literal[
    "fixed", "first_error", "bisect", "sequential", "posterior", "tree", "outcome"
]

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
    "PosteriorEstimator",
    "PriorLearner",
    "Priors",
    "SequentialEstimator",
    "SolutionPath",
    "Told",
    "TreeEstimator",
    "decide",
    "has_to_think",
    "make_estimator",
]


@dataclass(frozen=True, kw_only=True)
class EstimatorSettings:
    """An estimator by name, and its parameters; those of others have no effect."""

    kind: EstimatorKind
    rollouts: int = 16
    """Of every prefix (`fixed`), of every one reached or probed (`first_error`, `tree`), or at
    most of one."""
    root_rollouts: int = 0
    """Of the bare problem (`fixed`)."""
    batch: int = 4
    """Rollouts of a prefix that are started together, where their number is not fixed."""
    threshold: float = 0.25
    """Of a wrong step's value relative to the bare problem's (`sequential`)."""
    width: float = 0.25
    """Of an interval that is narrow enough (`sequential`)."""
    price: float = 3e-4
    """Gain a token under which nothing is rolled out (`posterior`): gain is about the chance that
    one more first error is found."""
    every: int = 0
    """Rollouts of every prefix before the search begins (`posterior`)."""
    max_tokens: float = float("inf")
    """Of a problem's rollouts (`posterior`)."""
    agreement: bool = True
    """Whether solutions' steps are compared with each other (`posterior`)."""
    searches: int = 16
    """Of a problem (`tree`)."""
    truncated: TruncatedPolicy = "wrong"
    """What a rollout cut by its length counts as."""


def make_estimator(
    settings: EstimatorSettings,
    paths: Sequence[SolutionPath],
    *,
    priors: Priors | None = None,
    answer_class: str = "",
) -> Estimator:
    """The estimator of one problem.

    Args:
        settings: which.
        paths: the problem's solutions.
        priors: of `posterior`; None takes wide ones.
        answer_class: of the problem's answer, of which priors depend.
    """
    cap, batch, truncated = settings.rollouts, settings.batch, settings.truncated
    match settings.kind:
        case "outcome":
            return OutcomeEstimator(paths)
        case "fixed":
            return FixedEstimator(
                paths, rollouts=cap, root_rollouts=settings.root_rollouts, truncated=truncated
            )
        case "first_error":
            return FirstErrorEstimator(paths, rollouts=cap, truncated=truncated)
        case "bisect":
            return BisectEstimator(paths, rollouts=cap, batch=batch, truncated=truncated)
        case "sequential":
            return SequentialEstimator(
                paths,
                rollouts=cap,
                batch=batch,
                threshold=settings.threshold,
                width=settings.width,
                truncated=truncated,
            )
        case "tree":
            return TreeEstimator(
                paths, rollouts=cap, searches=settings.searches, truncated=truncated
            )
        case "posterior":
            return PosteriorEstimator(
                paths,
                priors=priors or wide_priors(),
                answer_class=answer_class,
                price=settings.price,
                rollouts=cap,
                batch=batch,
                every=settings.every,
                max_tokens=settings.max_tokens,
                agreement=settings.agreement,
                truncated=truncated,
            )


def has_to_think(estimator: Estimator) -> bool:
    """Whether `wanted` will take long enough to be worth a `decide`."""
    return isinstance(estimator, PosteriorEstimator) and estimator.is_due


def decide(estimators: Iterable[Estimator]) -> None:
    """Let estimators of many problems think together, which takes less time than one by one.

    They then want what they would have wanted anyway.
    """
    think_together([e for e in estimators if isinstance(e, PosteriorEstimator) and e.is_due])
