"""Do probabilities hold: reliability bins, expected calibration error and Brier score.

A forecast says a chance; what came of it is the share of its events that happened (one event, or
the rollouts of a reference). Each forecast counts once. Intervals are by bootstrap over problems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.evaluation.bootstrap import (
    Estimate,
    ratio_estimate,
    resample_weights,
    shares,
    sums_by_problem,
    sums_estimate,
)

NUM_BINS = 10


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A chance that was said, and what came of it."""

    problem_id: str
    said: float
    """In [0, 1]."""
    came: float
    """Share of its events that happened, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Bin:
    """Forecasts between two chances."""

    low: float
    """Exclusive, but for 0."""
    high: float
    """Inclusive."""
    num_forecasts: int
    said: float
    """Mean."""
    came: Estimate
    """Mean."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How forecasts compare with what came of them."""

    num_problems: int
    num_forecasts: int
    bins: tuple[Bin, ...]
    """Those that hold forecasts."""
    ece: Estimate
    """Expected calibration error: mean over forecasts of |said - came| of their bin (Naeini et
    al. 2015). Noise only adds to it, in the resamples of its interval once more."""
    brier: Estimate
    """Mean squared distance to the single events (Brier 1950)."""
    base_brier: Estimate
    """Brier score of always saying the overall share."""


def calibration(
    forecasts: Sequence[Forecast], *, num_bins: int = NUM_BINS, seed: int = 0
) -> Calibration | None:
    """Measure forecasts; None if there are none.

    Args:
        forecasts: in any number a problem.
        num_bins: of equal width.
        seed: of the bootstrap.
    """
    if not forecasts:
        return None
    problems = [f.problem_id for f in forecasts]
    said = np.array([f.said for f in forecasts], dtype=np.float64)
    came = np.array([f.came for f in forecasts], dtype=np.float64)
    edges = np.linspace(0, 1, num_bins + 1)
    inside = np.searchsorted(edges[1:-1], said)[:, None] == np.arange(num_bins)
    binned = [inside, inside * said[:, None], inside * came[:, None]]
    squared = came * (1 - said) ** 2 + (1 - came) * said**2
    table = sums_by_problem(
        problems, np.concatenate([*binned, np.stack([squared, came], 1)], 1).astype(np.float64)
    )
    weights = resample_weights(len(table), seed)
    counts, of_said, of_came = (table[:, i * num_bins : (i + 1) * num_bins] for i in range(3))
    return Calibration(
        num_problems=len(table),
        num_forecasts=len(forecasts),
        bins=tuple(
            Bin(
                low=float(edges[i]),
                high=float(edges[i + 1]),
                num_forecasts=int(counts[:, i].sum()),
                said=float(of_said[:, i].sum() / counts[:, i].sum()),
                came=ratio_estimate(of_came[:, i], counts[:, i], weights),
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
