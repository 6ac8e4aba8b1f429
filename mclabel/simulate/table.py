"""Estimators on every profile: what `mclabel simulate` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table

from mclabel.estimators import EstimatorSettings
from mclabel.estimators.bisect import BisectEstimator
from mclabel.estimators.first_error import FirstErrorEstimator
from mclabel.estimators.fixed import FixedEstimator
from mclabel.estimators.posterior.estimator import PosteriorEstimator
from mclabel.estimators.sequential import SequentialEstimator
from mclabel.estimators.tree import TreeEstimator
from mclabel.simulate.measure import Measurement, measure
from mclabel.simulate.profiles import PROFILES, simulated_cases
from mclabel.simulate.run import SimulatedRun

COMPARED: Mapping[str, EstimatorSettings] = {
    settings.kind: settings
    for settings in (
        FixedEstimator.Settings(rollouts=16),
        FirstErrorEstimator.Settings(rollouts=16),
        BisectEstimator.Settings(rollouts=16),
        SequentialEstimator.Settings(rollouts=64),
        TreeEstimator.Settings(rollouts=16, searches=0),
        PosteriorEstimator.Settings(rollouts=64, min_gain_per_token=1e-3),
    )
}
"""Settings that are compared where none are given, by the name that they are shown by."""
LEARNED_PROBLEMS = 100
"""Problems of the profile that an estimator with a learner labels before it is measured."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """One estimator on one profile."""

    profile: str
    estimator: str
    """Name that it is shown by."""
    found: Measurement


def simulate(
    count: int,
    *,
    seed: int,
    profiles: Sequence[str] = PROFILES,
    estimators: Mapping[str, EstimatorSettings] = COMPARED,
) -> Iterator[Simulated]:
    """Run estimators on `count` problems of each profile.

    An estimator that learns over a run first labels `LEARNED_PROBLEMS` other problems of the
    profile, without truth, and begins with what it learned from them.

    Args:
        count: of problems.
        seed: of the problems and their rollouts.
        profiles: to run on.
        estimators: settings, by the name that they are shown by.

    Raises:
        ConfigError: an estimator breaks the rules of the protocol.
    """
    for profile in PROFILES:
        if profile not in profiles:
            continue
        for name, settings in estimators.items():
            run = SimulatedRun(settings)
            if run.learner is not None:
                others = simulated_cases(profile, LEARNED_PROBLEMS, seed=seed + 1)
                measure(run.begin, others, on_done=run.record)
                run.fit()
            cases = simulated_cases(profile, count, seed=seed)
            yield Simulated(
                profile=profile, estimator=name, found=measure(run.begin, cases, intervals=True)
            )


def simulation_table(rows: Iterable[Simulated]) -> Table:
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
        found = row.found
        tallies = found.sources.values()
        labels = sum(tally.labels for tally in tallies)
        covered = sum(tally.covered for tally in tallies)
        width = sum(tally.width for tally in tallies)
        fixed = sum(tally.fixed_width for tally in tallies)
        table.add_row(
            row.profile,
            row.estimator,
            f"{found.tokens_per_solution:,.0f}",
            f"{found.first_error_accuracy:.3f}",
            f"{found.first_error_accuracy_wrong:.3f}",
            f"{covered / labels:.3f}" if labels else "",
            f"{width / fixed:.2f}" if fixed else "",
            f"{len(found.table) / max(found.seconds, 1e-9):,.0f}",
        )
    table.caption = (
        "tokens: of rollouts, a solution. accuracy: of first errors; wrong: where there is one. "
        "covered: true values inside their 95% interval. width: of intervals, in "
        "Clopper-Pearson's. per s: problems."
    )
    table.caption_justify = "left"
    return table
