"""Makes what decides for a problem: one estimator for all completers, or one for each."""

from __future__ import annotations

from typing import Any

from mclabel.core.boundary import Boundary
from mclabel.labeling.estimators.base import EstimatorSettings
from mclabel.labeling.estimators.checked import CheckedEstimator
from mclabel.labeling.estimators.each import CompleterRule, EachCompleter, seen_by
from mclabel.labeling.estimators.paths import ProblemPaths

ProblemEstimator = CheckedEstimator | EachCompleter
"""What decides for a problem; both are asked in the same way."""


def begin_estimator(
    settings: EstimatorSettings,
    problem: ProblemPaths,
    *,
    rule: CompleterRule = "strongest",
    **learned: Any,
) -> ProblemEstimator:
    """Make the estimator of a problem.

    Args:
        settings: that name it.
        problem: with the paths of its solutions, and its completers.
        rule: by which the judgements on several completers are combined, if one estimator does not
            judge on all of them.
        learned: `knowledge` and `min_gain_per_token` of the run's learner.

    Raises:
        ComponentError: it cannot be made.
    """
    if settings.component.joint:
        return _begin(settings, problem, learned)
    seen = [seen_by(problem, number) for number in range(len(problem.completers))]
    parts = [_begin(settings, one, learned) for one in seen]
    return parts[0] if len(parts) == 1 else EachCompleter(parts, problem, rule)


def _begin(
    settings: EstimatorSettings, problem: ProblemPaths, learned: dict[str, Any]
) -> CheckedEstimator:
    component = settings.component
    begin = Boundary("estimators", component).call
    return CheckedEstimator(begin("begin", component.begin, settings, problem, **learned), problem)
