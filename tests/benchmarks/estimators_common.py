"""What the parts of the benchmark of estimators share: pools, points, priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mclabel.data.shards.store import Store
from mclabel.estimators import (
    Estimator,
    EstimatorSettings,
    PosteriorEstimator,
    PriorLearner,
    Priors,
    make_estimator,
)
from mclabel.estimators.posterior.priors import wide_priors
from mclabel.evaluation.label_quality import arith_truth
from mclabel.records import Outcome
from mclabel.simulate.measure import measure
from mclabel.simulate.pool import read_pool
from mclabel.simulate.replay import Case

FIT_PRICE = 1e-4
POSTERIORS = {"posterior": False, "posterior+agreement": True}
"""By name: whether it uses agreement."""


def load_pool(runs: Sequence[str], **options: Any) -> list[Case]:
    """Cases of several runs, those without a verdict left out; a problem is taken once."""
    cases = [case for run in runs for case in read_pool(Store(run), arith_truth, **options)]
    kept: dict[str, Case] = {}
    for case in cases:
        graded = [
            i for i, path in enumerate(case.paths) if path.outcome in (Outcome.RIGHT, Outcome.WRONG)
        ]
        if graded:
            kept.setdefault(
                case.id,
                replace(
                    case,
                    paths=tuple(case.paths[i] for i in graded),
                    truth=tuple(case.truth[i] for i in graded),
                ),
            )
    return list(kept.values())


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of one estimator."""

    name: str
    settings: EstimatorSettings
    label: str
    priors: Priors | None = None

    def make(self, case: Case) -> Estimator:
        return make_estimator(
            self.settings, case.paths, priors=self.priors, answer_class=case.answer_class
        )


def fitted(cases: Sequence[Case], *, agreement: bool, cap: int, rounds: int = 2) -> Priors:
    """Priors learned on these cases as a run would, without truth."""
    priors = wide_priors()
    settings = EstimatorSettings(
        kind="posterior", rollouts=cap, price=FIT_PRICE, agreement=agreement
    )
    for _ in range(rounds):
        learner = PriorLearner(price=FIT_PRICE, pilot=1)

        def keep(case: Case, estimator: Estimator, done: object, to: Any = learner) -> None:
            assert isinstance(estimator, PosteriorEstimator)
            once = estimator.evidence_once()
            to.add(case.answer_class, estimator.evidence(), num_tokens=0, once=once)

        point = Point(name="posterior", settings=settings, label="", priors=priors)
        measure(point.make, cases, on_done=keep)
        learner.fit()
        priors = learner.priors
    return priors
