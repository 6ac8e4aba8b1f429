"""Simulated labelling runs with known figures, to measure the coverage of confidence bands.

Solutions of one problem are correlated. They share a chance of being wrong, err at the same step
half of the time, are labelled well or badly together, and their predictions share one bias.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Outcome
from mclabel.core.stats.bootstrap import Estimate
from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.labels.calibration import Prediction, measure_calibration
from mclabel.evaluate.labels.quality import measure_label_quality
from mclabel.evaluate.processbench.figures import measure_processbench
from tests.support.rows import row, step

NUM_STEPS = 6
PER_PROBLEM = 4
NUM_FORECASTS = 8  # forecasts per problem
QUALITY = ("first_error_accuracy", "first_error_accuracy_wrong", "f1", "kappa")
_STEPS = (step(),) * NUM_STEPS
_TEXTS = ("x",) * NUM_STEPS


def figures(num_problems: int, seed: int) -> dict[str, Estimate]:
    """Return every figure of one simulated run, computed by the library's own functions."""
    true, labelled = (a.tolist() for a in errors(num_problems, np.random.default_rng(seed)))
    rows, judged = [], []
    for i in range(num_problems):
        for j in range(PER_PROBLEM):
            error = _error_index(true[i][j])
            outcome = Outcome.RIGHT if error is None else Outcome.WRONG
            rows.append(
                row(
                    f"p{i}",
                    _STEPS,
                    _error_index(labelled[i][j]),
                    sample=j,
                    outcome=outcome,
                    texts=_TEXTS,
                )
            )
            judged.append(
                JudgedSolution(id=f"p{i}.{j}", problem=f"p{i}", steps=_TEXTS, first_error=error)
            )
    truth = {solution.id: solution.first_error for solution in judged}
    predictions = {labelled_row.solution.id: labelled_row.first_error for labelled_row in rows}
    quality = measure_label_quality(
        rows, lambda labelled_row: truth[labelled_row.solution.id], seed=seed
    )
    predicted, came = _forecasts(num_problems, np.random.default_rng(seed + 2**32))
    measured = measure_calibration(
        [
            Prediction(problem_id=str(i), predicted=s, observed=c)
            for i in range(num_problems)
            for s, c in zip(predicted[i].tolist(), came[i].tolist(), strict=True)
        ],
        seed=seed,
    )
    assert measured is not None
    return {
        **{name: getattr(quality, name) for name in QUALITY},
        "processbench_f1": measure_processbench(
            {"s": judged}, {"s": predictions}, seed=seed
        ).mean_f1,
        "brier": measured.brier,
        "ece": measured.ece,
    }


def truths(num_problems: int = 400_000, seed: int = 123) -> dict[str, float]:
    """Return the same figures over enough problems to make noise negligible, in plain numpy."""
    true, labelled = errors(num_problems, np.random.default_rng(seed))
    predicted, came = (a.ravel() for a in _forecasts(num_problems, np.random.default_rng(seed + 1)))
    hit, wrong = true == labelled, true < NUM_STEPS
    unsound, flagged = NUM_STEPS - true, NUM_STEPS - labelled
    both = NUM_STEPS - np.maximum(true, labelled)
    p, q = unsound.mean() / NUM_STEPS, flagged.mean() / NUM_STEPS
    agreed = 1 - (unsound + flagged - 2 * both).mean() / NUM_STEPS
    chance = p * q + (1 - p) * (1 - q)
    on_wrong, on_right = hit[wrong].mean(), hit[~wrong].mean()
    at = np.minimum((predicted * 10).astype(int), 9)
    return {
        "first_error_accuracy": float(hit.mean()),
        "first_error_accuracy_wrong": float(on_wrong),
        "f1": float(2 * both.sum() / (unsound + flagged).sum()),
        "kappa": float((agreed - chance) / (1 - chance)),
        "processbench_f1": float(2 * on_wrong * on_right / (on_wrong + on_right)),
        "brier": float(((predicted - came) ** 2).mean()),
        "ece": float(
            sum(abs((predicted - came)[at == i].sum()) for i in range(10)) / len(predicted)
        ),
    }


def coverage(
    num_problems: int, num_runs: int, true: Mapping[str, float], *, seed: int = 0
) -> dict[str, float]:
    """Return the share of simulated runs whose band contains the true figure."""
    held: Counter[str] = Counter()
    for estimates in runs(num_problems, num_runs, seed=seed):
        for name, estimate in estimates.items():
            assert estimate.low is not None and estimate.high is not None
            held[name] += estimate.low <= true[name] <= estimate.high
    return {name: held[name] / num_runs for name in true}


def runs(num_problems: int, num_runs: int, *, seed: int = 0) -> Iterator[dict[str, Estimate]]:
    """Return the figures of independent simulated runs."""
    return (figures(num_problems, seed * 1_000_003 + number) for number in range(num_runs))


def errors(
    num_problems: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw true and labelled first errors [problems, solutions]; NUM_STEPS means no error."""
    shape = (num_problems, PER_PROBLEM)
    hard = rng.beta(0.7, 0.7, (num_problems, 1))
    common = rng.integers(0, NUM_STEPS, (num_problems, 1))
    place = np.where(rng.random(shape) < 0.5, common, rng.integers(0, NUM_STEPS, shape))
    true = np.where(rng.random(shape) < hard, place, NUM_STEPS)
    good = rng.beta(2.0, 1.0, (num_problems, 1))
    random_errors = rng.integers(0, NUM_STEPS + 1, shape)
    return true, np.where(rng.random(shape) < good, true, random_errors)


def _forecasts(
    num_problems: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw predictions that are too high, and their outcomes [problems, forecasts]."""
    predicted = rng.beta(0.8, 0.8, (num_problems, NUM_FORECASTS))
    missed = 1 + rng.exponential(1.0, (num_problems, 1))
    return predicted, (rng.random(predicted.shape) < predicted**missed).astype(np.float64)


def _error_index(place: int) -> int | None:
    return None if place == NUM_STEPS else place
