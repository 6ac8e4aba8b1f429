"""Estimators: pure state machines that decide which prefix to roll out next, and when to stop.

A configuration chooses an estimator by its name. To add an estimator, put a file in this package
and a line in `ESTIMATORS`, or name a class of your own package in the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping

from mclabel.labeling.estimators.base import (
    Estimator,
    EstimatorSettings,
    Follow,
    Judgement,
    Knowledge,
    RolloutSettings,
    RunLearner,
    decide_together,
    outcome_estimate,
    outcome_label,
)
from mclabel.labeling.estimators.begin import (
    CheckedEstimator,
    ProblemEstimator,
    begin_estimator,
    begin_learner,
)
from mclabel.labeling.estimators.paths import (
    ROOT,
    Completer,
    Probe,
    ProblemPaths,
    RecordedRollout,
    SolutionPath,
    classify_gold_answer,
    find_strongest_completer_index,
    list_distinct_prefixes,
)

ESTIMATORS: Mapping[str, str] = {
    "posterior": "mclabel.labeling.estimators.posterior.estimator:PosteriorEstimator",
    "trace": "mclabel.labeling.estimators.trace.estimator:TraceEstimator",
    "fixed": "mclabel.labeling.estimators.fixed:FixedEstimator",
    "first_error": "mclabel.labeling.estimators.fixed:FirstErrorEstimator",
    "bisect": "mclabel.labeling.estimators.bisect:BisectEstimator",
    "tree": "mclabel.labeling.estimators.tree:TreeEstimator",
    "outcome": "mclabel.labeling.estimators.fixed:OutcomeEstimator",
}
"""Import path of each built-in estimator's class, by its name in a configuration."""

__all__ = [
    "ESTIMATORS",
    "ROOT",
    "CheckedEstimator",
    "Completer",
    "Estimator",
    "EstimatorSettings",
    "Follow",
    "Judgement",
    "Knowledge",
    "Probe",
    "ProblemEstimator",
    "ProblemPaths",
    "RecordedRollout",
    "RolloutSettings",
    "RunLearner",
    "SolutionPath",
    "begin_estimator",
    "begin_learner",
    "classify_gold_answer",
    "decide_together",
    "find_strongest_completer_index",
    "list_distinct_prefixes",
    "outcome_estimate",
    "outcome_label",
]
