"""How problems are labelled: the settings that a label depends on, beside the policy's."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import OPERATIONAL, Chosen, Seed, Settings
from mclabel.data.steps import StepSplitter
from mclabel.labeling.estimators.base import EstimatorSettings
from mclabel.labeling.estimators.each import CompleterRule
from mclabel.labeling.sampling import SolutionSettings


def _posterior() -> EstimatorSettings:
    from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator

    return PosteriorEstimator.Settings()


class SampledSettings(Settings):
    """How solutions are sampled, split into steps and graded."""

    seed: Seed = 0
    """Random seed for sampling. The same seed gives the same completions if the engine samples
    reproducibly."""
    split: StepSplitter = StepSplitter()
    """Where the steps of solutions end."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Name of the checker, which compares the answers of completions to the gold answer. Its
    settings are the other keys of `checker`."""


class LabelSettings(SampledSettings):
    """How problems are labelled."""

    solutions: SolutionSettings = SolutionSettings()
    """Which solutions are labelled."""
    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="posterior")] = Field(
        default_factory=_posterior
    )
    """Name of the estimator, which decides from which prefixes rollouts are sampled and when to
    stop. Its settings are the other keys of `estimator`."""
    completer_rule: CompleterRule = "strongest"
    """Which steps count as right if several `completers` sample rollouts and the estimator judges
    by each separately: those from which the `strongest` (the most costly one) recovers, from which
    `any` recovers, or from which `all` recover. `estimator.kind=posterior` combines all completers
    and ignores this key."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop the job at the first input row or problem that cannot be labelled. If false, it is left
    out and listed in the output."""
