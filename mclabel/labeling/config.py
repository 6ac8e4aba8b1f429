"""Configuration of labelling jobs."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from mclabel.checkers.base import CheckerField, default_checker
from mclabel.core.settings import MAX_SECONDS, OPERATIONAL, Chosen, Seed, Settings, at_most, rule
from mclabel.data.readers.base import ChosenReader, ReaderSettings
from mclabel.data.steps import StepSplitter
from mclabel.engines.settings import PolicySettings
from mclabel.labeling.completers import MAX_COMPLETERS, CompleterSettings
from mclabel.labeling.estimators.base import EstimatorSettings
from mclabel.labeling.sampling import SolutionSettings
from mclabel.run.settings import BudgetConfig, RayConfig


def _posterior() -> EstimatorSettings:
    from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator

    return PosteriorEstimator.Settings()


class SampledSettings(Settings):
    """The way that solutions are sampled, split into steps and graded."""

    seed: Seed = 0
    """Random seed for sampling."""
    split: StepSplitter = StepSplitter()
    """Place where the steps of solutions end."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Checker, which grades completions against the gold answer."""


class LabelSettings(SampledSettings):
    """The way that problems are labelled."""

    solutions: SolutionSettings = SolutionSettings()
    """Which solutions are labelled."""
    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="posterior")] = Field(
        default_factory=_posterior
    )
    """Estimator, which decides what is rolled out and when to stop."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem, instead of leaving it out."""


MAX_BLOCK = 10_000


def arith_problems() -> ReaderSettings:
    """Settings of problems where a configuration has none."""
    from mclabel.data.readers.generated import ArithReader

    return ArithReader.Settings()


class LabelConfig(LabelSettings):
    """A labelling job."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. The same path resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=arith_problems
    )
    """Reader of the problems; by default it follows from `source`."""
    policy: PolicySettings = PolicySettings()
    """Model that writes the solutions, and the rollouts where `completers` is empty."""
    completers: Annotated[list[CompleterSettings], Field(max_length=MAX_COMPLETERS)] = Field([])
    """Models that sample the rollouts, such as `[{model: policy}, {model: arith:strong}]`, with
    the keys of `policy`; empty: the policy."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Problems in a block, the unit of work."""
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Store rollouts, which `mclabel regrade` needs."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of the journals: the most work that a killed engine loses."""
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()

    @rule
    def _a_completer_is_another_model(self) -> str | None:
        own = self.policy.semantic()
        keys = [
            own if completer.is_author else {**completer.semantic()}
            for completer in self.completers
        ]
        for number, completer in enumerate(keys):
            if not self.completers[number].is_author:
                del completer["name"], completer["cost"]
            if completer == own and not self.completers[number].is_author:
                return (
                    f"completers.{number}: is the policy itself. Write {{model: policy}}, or give "
                    "another model"
                )
            if completer in keys[:number]:
                return (
                    f"completers.{number}: repeats completers.{keys.index(completer)}, whose "
                    "rollouts would count twice. Remove one of the two"
                )
        return None

    @rule
    def _all_completers_have_a_cost_or_none(self) -> str | None:
        given = [
            number for number, completer in enumerate(self.completers) if completer.cost is not None
        ]
        if given and len(given) < len(self.completers):
            missing = next(n for n in range(len(self.completers)) if n not in given)
            return (
                f"completers.{missing}.cost: is not set, but completers.{given[0]}.cost is, and "
                "the default, the model's number of parameters, cannot be compared with it. Set "
                "cost for all completers, or for none"
            )
        return None

    @rule
    def _completers_differ_in_name(self) -> str | None:
        names = [completer.called for completer in self.completers]
        for number, name in enumerate(names):
            if name in names[:number]:
                return (
                    f"completers.{number}: has the name {name!r}, which "
                    f"completers.{names.index(name)} has, too. Set completers.{number}.name"
                )
        return None
