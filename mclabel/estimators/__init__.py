"""Which prefix to roll out next, and when to stop: pure state machines, chosen by name.

An estimator is one file here and one line in `ESTIMATORS`, or a class in a package of your own.
"""

from __future__ import annotations

from collections.abc import Mapping

from mclabel.estimators.base import (
    ROOT,
    Estimator,
    EstimatorSettings,
    Follow,
    Judgement,
    Knowledge,
    ProblemPaths,
    RecordedRollout,
    RolloutSettings,
    RunLearner,
    SolutionPath,
    answer_class,
    decide_together,
)

ESTIMATORS: Mapping[str, str] = {
    "posterior": "mclabel.estimators.posterior.estimator:PosteriorEstimator",
    "fixed": "mclabel.estimators.fixed:FixedEstimator",
    "first_error": "mclabel.estimators.first_error:FirstErrorEstimator",
    "bisect": "mclabel.estimators.bisect:BisectEstimator",
    "sequential": "mclabel.estimators.sequential:SequentialEstimator",
    "tree": "mclabel.estimators.tree:TreeEstimator",
    "outcome": "mclabel.estimators.outcome:OutcomeEstimator",
}
"""Name in a configuration, and where the class stands."""

__all__ = [
    "ESTIMATORS",
    "ROOT",
    "Estimator",
    "EstimatorSettings",
    "Follow",
    "Judgement",
    "Knowledge",
    "ProblemPaths",
    "RecordedRollout",
    "RolloutSettings",
    "RunLearner",
    "SolutionPath",
    "answer_class",
    "decide_together",
]
