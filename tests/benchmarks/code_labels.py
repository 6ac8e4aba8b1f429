"""Labels of pyarith against exact truth: estimators on pools of rollouts, and constant rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mclabel.core.config.load import find_bundled_config, load_config
from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import Estimate, draw_resample_weights, estimate_ratio
from mclabel.evaluate.labels.quality import measure_label_quality
from mclabel.labeling.config import LabelConfig
from mclabel.labeling.estimators.bisect import BisectEstimator
from mclabel.labeling.estimators.fixed import FixedEstimator
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from tests.benchmarks.estimators_common import Point, fit_posterior_priors, load_pool
from tests.benchmarks.runs import read_rows
from tests.benchmarks.scorers import Run
from tests.benchmarks.simulation.measure import COLUMNS, measure

PYARITH = "pyarith.yaml"
FIXED = (4, 8, 16)
GAINS = (0.08, 0.024, 0.008)
"""Values of `min_gain` that are measured besides the configured one."""
VALIDATION, TEST = "pool-validation", "pool-test"


def _first_of_body(row: LabeledSolution) -> int:
    """Return the index of the first statement after the header of `solve`.

    Helper functions may stand before that header.
    """
    steps = [step.text for step in row.solution.steps]
    header = next((n for n, text in enumerate(steps) if "def solve" in text), -1)
    return min(header + 1, len(steps) - 1)


CONSTANTS: Mapping[str, Callable[[LabeledSolution], int]] = {
    "the last statement but one": lambda row: max(0, len(row.steps) - 2),
    "the last statement": lambda row: len(row.steps) - 1,
    "the first body statement": _first_of_body,
}
"""Rules that name a first error from the layout of the text alone, if the answer is wrong. If the
answer is right, the rules name no error.
"""


@dataclass(frozen=True, kw_only=True)
class LabelFigures:
    """Quality and cost of an estimator's labels."""

    accuracy: Estimate
    """Share of solutions whose label gives the true first error, or rightly none. An undecided
    label counts as wrong.
    """
    where_wrong: Estimate
    """The same share among the solutions that have an error."""
    tokens: float
    """Mean number of rollout tokens per solution."""


def pools(*, validation: int, test: int, rollouts: int) -> list[Run]:
    """Return runs with `rollouts` rollouts of every prefix for the given numbers of problems."""
    estimator = {"kind": "fixed", "rollouts": rollouts, "root_rollouts": rollouts}
    made = []
    for name, split, count in ((VALIDATION, "validation", validation), (TEST, "test", test)):
        changes = [f"problems.split={split}", f"problems.limit={count}", "problems.seed=77"]
        changes += [f"estimator={json.dumps(estimator)}", "seed=77", "block_problems=8"]
        made.append(Run(name=name, config=PYARITH, overrides=changes))
    return made


def label_figures(out: Path, rollouts: int) -> dict[str, LabelFigures]:
    """Replay the estimators on the test pool; priors are fitted on the validation pool.

    Args:
        out: folder of the benchmark.
        rollouts: number of rollouts for each prefix in the pools.
    """
    validation, test = (
        load_pool([str(out / "runs" / name)], group="family") for name in (VALIDATION, TEST)
    )
    config = load_config(LabelConfig, find_bundled_config(f"label/{PYARITH}"), ["out=unused"])
    posterior = config.estimator
    assert isinstance(posterior, PosteriorEstimator.Settings)
    posterior = posterior.with_changes(rollouts=min(rollouts, posterior.rollouts))
    learned = fit_posterior_priors(validation, agreement=posterior.agreement, cap=min(rollouts, 16))
    bisect = BisectEstimator.Settings(rollouts=min(rollouts, 16), batch=4)
    points = [
        *(
            Point(name=f"fixed, K={k}", label="", settings=FixedEstimator.Settings(rollouts=k))
            for k in FIXED
            if k <= rollouts
        ),
        Point(name="posterior", label="", settings=posterior, knowledge=learned),
        *(
            Point(
                name=f"posterior, all decided, gain {gain:g}",
                label="",
                settings=posterior.with_changes(min_belief=0.0, min_gain=gain),
                knowledge=learned,
            )
            for gain in GAINS
        ),
        Point(name="bisect", label="", settings=bisect),
    ]
    weights = draw_resample_weights(len(test), 0)
    figures = {}
    for point in points:
        done = measure(point.make, test)
        hit, solutions, hit_wrong, with_error = (
            done.table[:, COLUMNS.index(name)]
            for name in ("hit", "solutions", "hit_wrong", "with_error")
        )
        figures[point.name] = LabelFigures(
            accuracy=estimate_ratio(hit, solutions, weights),
            where_wrong=estimate_ratio(hit_wrong, with_error, weights),
            tokens=done.tokens_per_solution,
        )
    return {**figures, **_measure_constants(out / "runs" / TEST)}


def _measure_constants(run: Path) -> dict[str, LabelFigures]:
    rows = read_rows(run)
    figures = {}
    for name, rule in CONSTANTS.items():
        labelled = [
            row.with_first_error(None if row.solution.outcome is Outcome.RIGHT else rule(row))
            for row in rows
        ]
        quality = measure_label_quality(labelled)
        figures[f"constant: {name}"] = LabelFigures(
            accuracy=quality.first_error_accuracy,
            where_wrong=quality.first_error_accuracy_wrong,
            tokens=0.0,
        )
    return figures
