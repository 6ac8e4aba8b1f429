"""Estimators on every profile: what `mclabel simulate` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from mclabel.core.components import find_component
from mclabel.data.readers.rows import read_text
from mclabel.labeling.estimators import (
    ESTIMATORS,
    CompleterRule,
    EstimatorSettings,
    ProblemEstimator,
    RolloutSettings,
    begin_estimator,
    begin_learner,
)
from mclabel.labeling.simulation.measure import Measurement, measure
from mclabel.labeling.simulation.profiles import PROFILES, simulated_cases
from mclabel.labeling.simulation.replay import Case, Replay

LEARNED_PROBLEMS = 100
"""Problems of the profile that an estimator with a learner labels before it is measured."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """One estimator on one profile."""

    profile: str
    estimator: str
    """Name that it is shown by."""
    found: Measurement

    def row(self) -> SimulatedRow:
        """What is shown of it."""
        tallies = self.found.sources.values()
        labels = sum(tally.labels for tally in tallies)
        fixed = sum(tally.fixed_width for tally in tallies)
        return SimulatedRow(
            profile=self.profile,
            estimator=self.estimator,
            tokens_per_solution=self.found.tokens_per_solution,
            accuracy=self.found.first_error_accuracy,
            accuracy_wrong=self.found.first_error_accuracy_wrong,
            covered=sum(tally.covered for tally in tallies) / labels if labels else None,
            width=sum(tally.width for tally in tallies) / fixed if fixed else None,
            problems_per_s=len(self.found.table) / max(self.found.seconds, 1e-9),
        )


@dataclass(frozen=True, kw_only=True)
class SimulatedRow:
    """Figures of one estimator on one profile."""

    profile: str
    estimator: str
    tokens_per_solution: float
    """Tokens of rollouts."""
    accuracy: float
    """Share of the solutions whose first error, or its absence, was found."""
    accuracy_wrong: float
    """The same share of the solutions that have an error."""
    covered: float | None
    """Share of true values inside their 95% interval; None without intervals."""
    width: float | None
    """Mean width of these intervals, as a multiple of Clopper-Pearson's."""
    problems_per_s: float


def simulate(
    count: int,
    *,
    seed: int,
    profiles: Sequence[str] = PROFILES,
    estimators: Mapping[str, EstimatorSettings] | None = None,
) -> Iterator[Simulated]:
    """Run estimators on `count` problems of each profile.

    An estimator that learns over a run first labels `LEARNED_PROBLEMS` other problems of the
    profile, without truth, and begins with what it learned from them.

    Args:
        count: of problems.
        seed: of the problems and their rollouts.
        profiles: to run on.
        estimators: settings, by the name that they are shown by; None takes `built_in`.

    Raises:
        ConfigError: an estimator breaks the rules of the protocol.
    """
    chosen = built_in() if estimators is None else estimators
    for profile in PROFILES:
        if profile not in profiles:
            continue
        for name, settings in chosen.items():
            run = SimulatedRun(settings)
            if run.learner is not None:
                others = simulated_cases(profile, LEARNED_PROBLEMS, seed=seed + 1)
                measure(run.begin, others, on_done=run.record)
                run.fit()
            cases = simulated_cases(profile, count, seed=seed)
            yield Simulated(
                profile=profile, estimator=name, found=measure(run.begin, cases, intervals=True)
            )


def built_in() -> dict[str, EstimatorSettings]:
    """Settings at which the built-in estimators that roll out are compared, by their names."""
    kinds = {name: find_component(EstimatorSettings.component_kind, name) for name in ESTIMATORS}
    return {
        name: kind.Settings(**kind.simulated)
        for name, kind in kinds.items()
        if issubclass(kind.Settings, RolloutSettings)
    }


def simulation_table(rows: Iterable[SimulatedRow]) -> Table:
    """Show what each estimator costs and finds, and whether its intervals hold."""
    table = Table(title="Simulated problems with known values", title_justify="left")
    for column in (
        "profile",
        "estimator",
        "tokens",
        "accuracy",
        "wrong",
        "covered",
        "width",
        "per s",
    ):
        left = column in ("profile", "estimator")
        table.add_column(
            column,
            justify="left" if left else "right",
            no_wrap=column != "estimator",
            overflow="fold",
        )
    for row in rows:
        table.add_row(
            row.profile,
            row.estimator,
            f"{row.tokens_per_solution:,.0f}",
            f"{row.accuracy:.3f}",
            f"{row.accuracy_wrong:.3f}",
            "" if row.covered is None else f"{row.covered:.3f}",
            "" if row.width is None else f"{row.width:.2f}",
            f"{row.problems_per_s:,.0f}",
        )
    table.caption = (
        "tokens: of rollouts, a solution. accuracy: of first errors; wrong: where there is one. "
        "covered: true values inside their 95% interval. width: of intervals, in "
        "Clopper-Pearson's. per s: problems."
    )
    table.caption_justify = "left"
    return table


class SimulatedRun:
    """Makes the estimators of a run's cases, as labelling does on one engine.

    Where the estimator has a learner, cases begin with what it has learned so far.
    """

    def __init__(self, settings: EstimatorSettings, *, rule: CompleterRule = "strongest") -> None:
        """Begin a run.

        Args:
            settings: of the estimator.
            rule: by which judgements on several completers are combined.

        Raises:
            ConfigError: a file that the settings name cannot be read.
        """
        self.settings, self._rule = settings, rule
        self.learner = begin_learner(settings, read_text)

    def begin(self, case: Case) -> ProblemEstimator:
        """Make the estimator of a case."""
        knowledge, min_gain = None, None
        if self.learner is not None:
            knowledge, min_gain = self.learner.knowledge, self.learner.min_gain_per_token
        return begin_estimator(
            self.settings,
            case.problem,
            rule=self._rule,
            knowledge=knowledge,
            min_gain_per_token=min_gain,
        )

    def record(self, case: Case, checked: ProblemEstimator, done: Replay) -> None:
        """Let the learner record a finished case."""
        if self.learner is not None:
            checked.learned_by(self.learner, case.problem, num_tokens=done.num_tokens)

    def fit(self) -> None:
        """Let the learner learn from what it recorded, if that is evidence enough."""
        if self.learner is not None and self.learner.is_due:
            self.learner.fit()
