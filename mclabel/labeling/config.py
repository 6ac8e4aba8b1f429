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


def _make_default_estimator() -> EstimatorSettings:
    from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator

    return PosteriorEstimator.Settings()


class SampledSettings(Settings):
    """Settings for sampling solutions, splitting them into steps and grading them."""

    seed: Seed = 0
    """Random seed for sampling."""
    split: StepSplitter = StepSplitter()
    """Rule that splits solutions into steps."""
    checker: CheckerField = Field(default_factory=default_checker)
    """Checker that grades completions against the gold answer."""


class LabelSettings(SampledSettings):
    """Settings that determine how problems are labelled."""

    solutions: SolutionSettings = SolutionSettings()
    """Solutions to label: sampled from the policy, read from a file, or reused from a run."""
    estimator: Annotated[EstimatorSettings, Chosen("estimators", default="posterior")] = Field(
        default_factory=_make_default_estimator
    )
    """Estimator that chooses the prefixes to roll out from and decides when to stop."""
    strict: Annotated[bool, OPERATIONAL] = False
    """Stop at the first unusable row or problem instead of skipping it."""


MAX_BLOCK = 10_000
"""Maximum number of problems per block."""


def make_arith_reader_settings() -> ReaderSettings:
    """Return the reader settings of the bundled arithmetic problems, which are the default of the
    setting `problems`.
    """
    from mclabel.data.readers.generated import ArithReader

    return ArithReader.Settings()


class LabelConfig(LabelSettings):
    """Configuration of a labelling job."""

    out: Annotated[str, OPERATIONAL]
    """Output folder or object store URL. Running with the same `out` resumes an interrupted run."""
    problems: Annotated[ReaderSettings, OPERATIONAL, ChosenReader()] = Field(
        default_factory=make_arith_reader_settings
    )
    """Reader of the problems. The default reader is chosen by `source`."""
    policy: PolicySettings = PolicySettings()
    """Model that samples the solutions, and also the rollouts if `completers` is empty."""
    completers: Annotated[list[CompleterSettings], Field(max_length=MAX_COMPLETERS)] = Field([])
    """Models that sample the rollouts, such as `[{model: policy}, {model: arith:strong}]`. Each
    entry has the keys of `policy`. If the list is empty, the policy samples the rollouts."""
    block_problems: Annotated[
        int,
        OPERATIONAL,
        at_most(MAX_BLOCK, "a block is held in memory, and committed, as a whole"),
    ] = Field(8, ge=1)
    """Number of problems per block. A block is the unit of work that one engine leases and commits.
    """
    keep_rollouts: Annotated[bool, OPERATIONAL] = True
    """Store the rollouts. `mclabel regrade` and runs that reuse this run's rollouts need them."""
    journal_s: Annotated[float, OPERATIONAL] = Field(60, gt=0, le=MAX_SECONDS)
    """Seconds between two writes of a journal. A killed engine loses at most the work of this time.
    """
    budget: Annotated[BudgetConfig, OPERATIONAL] = BudgetConfig()
    ray: Annotated[RayConfig, OPERATIONAL] = RayConfig()

    @rule
    def _check_completers_differ_from_policy(self) -> str | None:
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
                    f"completers.{number}: describes the policy itself. Write {{model: policy}}, "
                    "or give another model"
                )
            if completer in keys[:number]:
                return (
                    f"completers.{number}: repeats completers.{keys.index(completer)}, whose "
                    "rollouts would count twice. Remove one of the two"
                )
        return None

    @rule
    def _check_all_or_no_completers_have_costs(self) -> str | None:
        given = [
            number for number, completer in enumerate(self.completers) if completer.cost is not None
        ]
        if given and len(given) < len(self.completers):
            missing = next(n for n in range(len(self.completers)) if n not in given)
            return (
                f"completers.{missing}.cost: is not set, but completers.{given[0]}.cost is set. "
                "The default cost, the model's number of parameters, cannot be compared with it. "
                "Set cost for all completers, or for none"
            )
        return None

    @rule
    def _check_completer_names_differ(self) -> str | None:
        names = [completer.label_name for completer in self.completers]
        for number, name in enumerate(names):
            if name in names[:number]:
                return (
                    f"completers.{number}: has the same name {name!r} as "
                    f"completers.{names.index(name)}. Set completers.{number}.name"
                )
        return None
