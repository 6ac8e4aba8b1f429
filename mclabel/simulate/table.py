"""Every estimator on every profile: what `mclabel simulate` shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from mclabel.estimators import Estimator, EstimatorSettings, PosteriorEstimator, make_estimator
from mclabel.estimators.posterior.learner import PriorLearner
from mclabel.estimators.posterior.priors import Priors
from mclabel.simulate.measure import Measurement, measure
from mclabel.simulate.profiles import PROFILES, simulated_cases
from mclabel.simulate.replay import Case, Replay

ESTIMATORS = {
    "fixed": EstimatorSettings(kind="fixed", rollouts=16),
    "first_error": EstimatorSettings(kind="first_error", rollouts=16),
    "bisect": EstimatorSettings(kind="bisect", rollouts=16),
    "sequential": EstimatorSettings(kind="sequential", rollouts=64),
    "tree": EstimatorSettings(kind="tree", rollouts=16, searches=0),
    "posterior": EstimatorSettings(kind="posterior", rollouts=64, price=1e-3),
}
PILOT_PRICE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """One estimator on one profile."""

    profile: str
    estimator: str
    found: Measurement


def simulate(count: int, *, seed: int, profiles: Sequence[str] = PROFILES) -> Iterator[Simulated]:
    """Run every estimator on `count` problems of each profile.

    The posterior's priors are learned, without truth, on 100 other problems of the profile.
    """
    for profile in PROFILES:
        if profile not in profiles:
            continue
        for name, settings in ESTIMATORS.items():
            priors = None
            if settings.kind == "posterior":
                priors = learned(simulated_cases(profile, 100, seed=seed + 1))

            def make(case: Case, priors: Priors | None = priors, name: str = name) -> Estimator:
                return make_estimator(
                    ESTIMATORS[name], case.paths, priors=priors, answer_class=case.answer_class
                )

            cases = simulated_cases(profile, count, seed=seed)
            yield Simulated(
                profile=profile, estimator=name, found=measure(make, cases, intervals=True)
            )


def learned(cases: Iterable[Case]) -> Priors:
    """Priors as a pilot on these cases gives them."""
    learner = PriorLearner(price=PILOT_PRICE, pilot=1)

    def make(case: Case) -> Estimator:
        settings = EstimatorSettings(kind="posterior", rollouts=64, price=PILOT_PRICE)
        return make_estimator(settings, case.paths, answer_class=case.answer_class)

    def keep(case: Case, estimator: Estimator, done: Replay) -> None:
        assert isinstance(estimator, PosteriorEstimator)
        once = estimator.evidence_once()
        learner.add(case.answer_class, estimator.evidence(), num_tokens=done.num_tokens, once=once)

    measure(make, cases, on_done=keep)
    learner.fit()
    return learner.priors


def simulation_table(rows: Iterable[Simulated]) -> Table:
    """What each estimator costs and finds, and whether its intervals hold."""
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
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for row in rows:
        found = row.found
        labels = sum(rule.labels for rule in found.rules.values())
        covered = sum(rule.covered for rule in found.rules.values())
        width = sum(rule.width for rule in found.rules.values())
        fixed = sum(rule.fixed_width for rule in found.rules.values())
        table.add_row(
            row.profile,
            row.estimator,
            f"{found.tokens_per_solution:,.0f}",
            f"{found.first_error_accuracy:.3f}",
            f"{found.first_error_accuracy_wrong:.3f}",
            f"{covered / max(1, labels):.3f}",
            f"{width / max(fixed, 1e-9):.2f}",
            f"{len(found.table) / max(found.seconds, 1e-9):,.0f}",
        )
    table.caption = (
        "tokens: of rollouts, a solution. accuracy: of first errors; wrong: where there is one. "
        "covered: true values inside their 95% interval. width: of intervals, in "
        "Clopper-Pearson's. per s: problems."
    )
    table.caption_justify = "left"
    return table
