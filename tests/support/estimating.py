"""Construction of estimators from a name, settings and solution paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mclabel.core.settings import Chosen
from mclabel.labeling.estimators import Estimator, EstimatorSettings, ProblemPaths, SolutionPath


def settings_of(kind: str, **settings: Any) -> EstimatorSettings:
    """Return the validated settings of an estimator, as a configuration gives them."""
    validated = Chosen("estimators", default=kind).settings({"kind": kind, **settings})
    assert isinstance(validated, EstimatorSettings)
    return validated


def make(
    kind: str,
    paths: Sequence[SolutionPath],
    *,
    answer_class: str = "",
    knowledge: Any = None,
    **settings: Any,
) -> Any:
    """Make the estimator of a problem with these paths, through the protocol.

    Args:
        kind: name of the estimator.
        paths: paths of the problem's solutions.
        answer_class: answer class of the problem.
        knowledge: knowledge learned from other problems.
        settings: settings of the estimator.
    """
    chosen = settings_of(kind, **settings)
    problem = ProblemPaths(paths=paths, answer_class=answer_class)
    estimator: Estimator = chosen.component.begin(chosen, problem, knowledge=knowledge)
    return estimator
