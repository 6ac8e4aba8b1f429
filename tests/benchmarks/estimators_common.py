"""What the parts of the benchmark of estimators share: pools, points, priors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from mclabel import jobs
from mclabel.core.config.load import bundled_config, load_config
from mclabel.core.records import Outcome
from mclabel.data.readers.rows import read_text
from mclabel.evaluate.labels.quality import exact_first_error
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators import Estimator, EstimatorSettings, Knowledge, ProblemEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.simulation.measure import COLUMNS, Measurement, measure
from mclabel.labeling.simulation.replay import Case, Replay, read_pool
from mclabel.run.shards.store import Store
from mclabel.show.progress import job_progress

SEED = 77
TRUTH_SEED = 79
"""Of the problems whose values are known: not those of the test pool."""
FIT_GAIN = 1e-4
"""Least gain a token of the problems that priors are fitted on."""
MARGIN = 0.03
"""What a figure may fall short by where two are called equal: the lower end of the interval of
their difference must lie above its negative. An interval that reaches 0 shows nothing."""
POSTERIORS = {"posterior": False, "posterior+agreement": True}
"""Whether a posterior uses agreement, by its name here."""


def make_pool(out: Path, name: str, count: int, rollouts: int, console: Console) -> str:
    """Label `count` problems with `rollouts` of every prefix.

    Args:
        out: folder of the pools; a pool that is there already is resumed.
        name: `validation`, `test` or `truth`, which chooses the problems.
        count: problems.
        rollouts: of each prefix.
        console: progress goes there.

    Returns:
        The run.
    """
    where = str(out / name)
    seed = TRUTH_SEED if name == "truth" else SEED
    split = "validation" if name == "validation" else "test"
    changes = [f"out={where}", f"problems.split={split}", f"problems.limit={count}"]
    changes += [f"estimator.rollouts={rollouts}", f"estimator.root_rollouts={rollouts}"]
    config = load_config(
        LabelConfig,
        bundled_config("label/quickstart.yaml"),
        [*changes, f"problems.seed={seed}", f"seed={seed}", "ray.address=none", "block_problems=4"],
    )
    with job_progress(console, f"pool {name}") as progress:
        jobs.label(config, progress)
    return where


def load_pool(runs: Sequence[str], **options: Any) -> list[Case]:
    """Cases of several runs, those without a verdict left out; a problem is taken once."""
    cases = [case for run in runs for case in read_pool(Store(run), exact_first_error, **options)]
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
    knowledge: Knowledge | None = None
    """What the estimator begins with."""

    def make(self, case: Case) -> Estimator:
        """Make the estimator of a case."""
        estimator: Estimator = self.settings.component.begin(
            self.settings, case.problem, knowledge=self.knowledge
        )
        return estimator


def fitted(
    cases: Sequence[Case], *, agreement: bool, cap: int, rounds: int = 2
) -> Knowledge | None:
    """Priors of the posterior learned on these cases."""
    settings = PosteriorEstimator.Settings(
        min_belief=0.0, rollouts=cap, min_gain_per_token=FIT_GAIN, agreement=agreement
    )
    return learned(cases, settings, rounds=rounds)


def learned(
    cases: Sequence[Case], settings: EstimatorSettings, *, rounds: int = 2
) -> Knowledge | None:
    """What an estimator learns on these cases as on a run, without truth."""
    knowledge: Knowledge | None = None
    for _ in range(rounds):
        learner = settings.component.learner(settings, read_text)

        def keep(case: Case, checked: ProblemEstimator, done: Replay, to: Any = learner) -> None:
            checked.learned_by(to, case.problem, num_tokens=done.num_tokens)

        point = Point(name="learning", settings=settings, label="", knowledge=knowledge)
        measure(point.make, cases, on_done=keep)
        learner.fit()
        knowledge = learner.knowledge
    return knowledge


def difference(
    one: Measurement, other: Measurement, top: str, bottom: str, weights: NDArray[np.float64]
) -> list[float]:
    """Value, low and high of the paired difference of two shares."""
    shares = []
    for found in (one, other):
        a, b = (found.table[:, COLUMNS.index(name)] for name in (top, bottom))
        shares.append((a.sum() / b.sum(), weights @ a / np.maximum(weights @ b, 1e-9)))
    low, high = np.quantile(shares[0][1] - shares[1][1], [0.025, 0.975])
    return [float(shares[0][0] - shares[1][0]), float(low), float(high)]


def shown_equal(differences: Sequence[Sequence[float]]) -> bool:
    """Whether every difference (value, low, high) is shown to be above `-MARGIN`."""
    return all(low >= -MARGIN for _, low, _ in differences)
