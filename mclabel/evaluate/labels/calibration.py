"""Do probabilities hold: reliability bins, expected calibration error and Brier score.

A prediction is a chance; what was observed is the share of its events that happened (one event, or
the rollouts of a reference). Each prediction counts once. Intervals are by bootstrap over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.core.stats.bootstrap import (
    Estimate,
    ratio_estimate,
    resample_weights,
    shares,
    sums_by_problem,
    sums_estimate,
)

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """A chance, and how often what it is the chance of happened."""

    problem_id: str
    predicted: float
    """Chance of an event, in [0, 1]."""
    observed: float
    """Share of the events that happened, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Predictions between two chances."""

    low: float
    """Lowest chance, exclusive, but for 0."""
    high: float
    """Highest chance, inclusive."""
    num_predictions: int
    predicted: float
    """Mean chance of the predictions."""
    observed: Estimate
    """Mean share of events that happened."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How predictions compare with what was observed."""

    num_problems: int
    num_predictions: int
    bins: tuple[Bin, ...]
    """The bins that hold predictions."""
    ece: Estimate
    """Expected calibration error: mean over predictions of |predicted - observed| of their bin
    (Naeini et al. 2015). Noise only adds to it, in the resamples of its interval once more."""
    brier: Estimate
    """Mean squared distance to the single events (Brier 1950)."""
    base_brier: Estimate
    """Brier score of predicting the overall share every time."""


def calibration(
    predictions: Sequence[Prediction], *, num_bins: int = NUM_BINS, seed: int = 0
) -> Calibration | None:
    """Measure predictions; None if there are none.

    Args:
        predictions: in any number a problem.
        num_bins: of equal width.
        seed: of the bootstrap.
    """
    if not predictions:
        return None
    problems = [f.problem_id for f in predictions]
    predicted = np.array([f.predicted for f in predictions], dtype=np.float64)
    observed = np.array([f.observed for f in predictions], dtype=np.float64)
    edges = np.linspace(0, 1, num_bins + 1)
    inside = np.searchsorted(edges[1:-1], predicted)[:, None] == np.arange(num_bins)
    binned = [inside, inside * predicted[:, None], inside * observed[:, None]]
    squared = observed * (1 - predicted) ** 2 + (1 - observed) * predicted**2
    table = sums_by_problem(
        problems, np.concatenate([*binned, np.stack([squared, observed], 1)], 1).astype(np.float64)
    )
    weights = resample_weights(len(table), seed)
    counts, of_predicted, of_observed = (
        table[:, i * num_bins : (i + 1) * num_bins] for i in range(3)
    )
    return Calibration(
        num_problems=len(table),
        num_predictions=len(predictions),
        bins=tuple(
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                num_predictions=int(counts[:, i].sum()),
                predicted=float(of_predicted[:, i].sum() / counts[:, i].sum()),
                observed=ratio_estimate(of_observed[:, i], counts[:, i], weights),
            )
            for i in range(num_bins)
            if counts[:, i].any()
        ),
        ece=sums_estimate(table, weights, lambda sums: _ece(sums, num_bins)),
        brier=sums_estimate(
            table, weights, lambda sums: shares(sums[..., -2], _total(sums, num_bins))
        ),
        base_brier=sums_estimate(table, weights, lambda sums: _base_brier(sums, num_bins)),
    )


def _total(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    total: NDArray[np.float64] = sums[..., :num_bins].sum(-1)
    return total


def _ece(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    apart = sums[..., num_bins : 2 * num_bins] - sums[..., 2 * num_bins : 3 * num_bins]
    return shares(np.abs(apart).sum(-1), _total(sums, num_bins))


def _base_brier(sums: NDArray[np.float64], num_bins: int) -> NDArray[np.float64]:
    share = shares(sums[..., -1], _total(sums, num_bins))
    return share * (1 - share)
