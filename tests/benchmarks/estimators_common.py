"""Pools, curve points and priors for all parts of the benchmark of estimators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.data.readers.rows import read_text
from mclabel.evaluate.labels.quality import find_exact_first_error
from mclabel.labeling.estimators import Estimator, EstimatorSettings, Knowledge, ProblemEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.run.shards.store import Store
from tests.benchmarks.runs import label
from tests.benchmarks.simulation.measure import COLUMNS, Measurement, measure
from tests.benchmarks.simulation.replay import Case, Replay, read_pool

SEED = 77
TRUTH_SEED = 79
"""Random seed of the problems whose values are known; they differ from the test pool's."""
FIT_GAIN = 0.008
"""Value of `min_gain` for the problems that priors are fitted to."""
MARGIN = 0.03
"""Tolerance for calling two settings equal: the lower end of the interval of their difference must
lie above minus this value. An interval that merely contains 0 does not show equality.
"""
POSTERIORS = {"posterior": False, "posterior+agreement": True}
"""Names of the posterior estimators here, with whether each uses agreement."""


def make_pool(out: Path, name: str, count: int, rollouts: int) -> str:
    """Label `count` problems with `rollouts` rollouts of every prefix.

    Args:
        out: folder of the pools; an existing pool is resumed.
        name: `validation`, `test` or `truth`, which chooses the problems.
        count: number of problems.
        rollouts: number of rollouts for each prefix.

    Returns:
        Path of the run.
    """
    seed = TRUTH_SEED if name == "truth" else SEED
    split = "validation" if name == "validation" else "test"
    changes = [f"problems.split={split}", f"problems.limit={count}", f"problems.seed={seed}"]
    changes += [f"estimator.rollouts={rollouts}", f"estimator.root_rollouts={rollouts}"]
    label(out / name, *changes, f"seed={seed}", "block_problems=4")
    return str(out / name)


def load_pool(runs: Sequence[str], **options: Any) -> list[Case]:
    """Read the graded cases of several runs.

    A problem that several runs contain is taken once.
    """
    cases = [
        case for run in runs for case in read_pool(Store(run), find_exact_first_error, **options)
    ]
    kept: dict[str, Case] = {}
    for case in graded(cases):
        kept.setdefault(case.id, case)
    return list(kept.values())


def graded(cases: Sequence[Case]) -> list[Case]:
    """Return the cases without the solutions that have no verdict, and without empty cases."""
    kept = []
    for case in cases:
        verdicts = [
            (path, truth)
            for path, truth in zip(case.paths, case.truth, strict=True)
            if path.outcome in (Outcome.RIGHT, Outcome.WRONG)
        ]
        if verdicts:
            paths, truth = zip(*verdicts, strict=True)
            kept.append(replace(case, paths=paths, truth=truth))
    return kept


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting of one estimator."""

    name: str
    settings: EstimatorSettings
    label: str
    knowledge: Knowledge | None = None
    """Prior knowledge that the estimator begins with."""

    def make(self, case: Case) -> Estimator:
        """Make the estimator of a case."""
        estimator: Estimator = self.settings.component.begin(
            self.settings, case.problem, knowledge=self.knowledge
        )
        return estimator


def fit_posterior_priors(
    cases: Sequence[Case], *, agreement: bool, cap: int, rounds: int = 2
) -> Knowledge | None:
    """Fit the priors of the posterior to these cases."""
    settings = PosteriorEstimator.Settings(
        min_belief=0.0, rollouts=cap, min_gain=FIT_GAIN, agreement=agreement
    )
    return learned(cases, settings, rounds=rounds)


def learned(
    cases: Sequence[Case], settings: EstimatorSettings, *, rounds: int = 2
) -> Knowledge | None:
    """Let an estimator learn from these cases as in a run, without the truth."""
    knowledge: Knowledge | None = None
    for _ in range(rounds):
        learner = settings.component.learner(settings, read_text)

        def keep(case: Case, checked: ProblemEstimator, done: Replay, to: Any = learner) -> None:
            checked.record_evidence(to, case.problem, num_tokens=done.num_tokens)

        point = Point(name="learning", settings=settings, label="", knowledge=knowledge)
        measure(point.make, cases, on_done=keep)
        learner.fit()
        knowledge = learner.knowledge
    return knowledge


def difference(
    first: Measurement, second: Measurement, top: str, bottom: str, weights: NDArray[np.float64]
) -> list[float]:
    """Return the value, low and high of the paired difference of two shares."""
    (value, drawn), (its, others) = (_share(m, top, bottom, weights) for m in (first, second))
    return [round(n, 4) for n in (value - its, *_interval_bounds(drawn - others))]


def share(
    measurement: Measurement, top: str, bottom: str, weights: NDArray[np.float64]
) -> list[float]:
    """Return the value, low and high of one column's sum divided by another's."""
    value, drawn = _share(measurement, top, bottom, weights)
    return [round(n, 4) for n in (value, *_interval_bounds(drawn))]


def _share(
    measurement: Measurement, top: str, bottom: str, weights: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    a, b = (measurement.table[:, COLUMNS.index(name)] for name in (top, bottom))
    return measurement.ratio(top, bottom), weights @ a / np.maximum(weights @ b, 1e-9)


def _interval_bounds(drawn: NDArray[np.float64]) -> list[float]:
    low, high = np.quantile(drawn, [0.025, 0.975])
    return [float(low), float(high)]


def shown_equal(differences: Sequence[Sequence[float]]) -> bool:
    """Return True if every difference (value, low, high) is shown to be above `-MARGIN`."""
    return all(low >= -MARGIN for _, low, _ in differences)
