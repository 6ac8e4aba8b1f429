"""How problems are labelled: the settings that a label depends on, beside the policy's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.data.steps import StepSplitter
from mclabel.estimators.base import EstimatorSettings
from mclabel.labeling.sampling import SolutionSettings
from mclabel.settings import OPERATIONAL, Chosen, Settings


def _posterior() -> EstimatorSettings:
    from mclabel.estimators.posterior.estimator import PosteriorEstimator

    return PosteriorEstimator.Settings()


class LabelSettings(Settings):
    """How problems are labelled."""

    seed: int = Field(0, ge=0)
    """Seed of the sampling. The same seed gives the same completions where the engine allows it."""
    solutions: SolutionSettings = SolutionSettings()
    """Which solutions are labelled."""
    split: StepSplitter = StepSplitter()
    """Where their steps end."""
    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="posterior")] = Field(
        default_factory=_posterior
    )
    """The estimator decides which prefixes are rolled out and when to stop: its name in `kind`, and
    its settings."""
    checker: CheckerField = Field(default_factory=default_checker)
    """The checker that grades completions: its name in `kind`, and its settings."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first row or problem that cannot be labelled, instead of leaving it
    out."""
