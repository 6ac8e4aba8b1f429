"""Makes beliefs mean what they say.

The chain is fitted without truth, and some of what it must believe cannot be seen without: how
often a right answer is reached through a wrong step; that samples of one policy err alike, so that
they are less evidence than as many independent ones; and, most of all, where the error is if
nothing ever ended right, since then a step after which the policy will misread what comes next
looks like a wrong one. So the largest belief is moved on the scale of log odds by a rising curve,
straight between knots, apart for these three kinds of solutions; the others keep their
proportions. The likeliest first error stays what it is.

The numbers were fitted by likelihood on the truth of 320 of arith's *validation* problems, at four
prices together (`tests/benchmarks/estimators_calibration.py`), and reported on test problems. They
hold for the bundled policy and its problems. In another domain other errors are lucky, and beliefs
rank solutions well but are promises only where the same was done with some truth of that domain.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

Floats = NDArray[np.float64]

KNOTS = np.array([-1.5, -0.5, 0.5, 1.5, 3.0, 5.0])
"""Log odds of the largest belief, as the chain has it."""

Kind = Literal["right", "found", "lost"]
"""The solution ended right; it did not, but a sample from one of its prefixes did; none did."""

MAPS: dict[tuple[bool, Kind], tuple[float, ...]] = {
    (False, "right"): (-1.5, 0.087, 0.982, 1.699, 1.798, 2.637),
    (False, "found"): (-2.108, -0.101, 1.564, 1.771, 1.845, 5.336),
    (False, "lost"): (-1.064, -1.064, -0.738, 2.672, 3.133, 5.021),
    (True, "right"): (-1.5, -0.967, -0.315, 0.196, 0.737, 2.51),
    (True, "found"): (-0.774, -0.294, 0.207, 1.643, 1.907, 2.539),
    (True, "lost"): (-0.793, -0.793, -0.491, 0.233, 0.853, 4.507),
}
"""Log odds as they turned out, at the knots, by whether agreement was used and by kind."""

_EDGE = 1e-6
_RIDGE = 5.0
"""Labels' worth of belief that a knot is right as it is."""


def calibrated(posterior: Floats, *, agreement: bool, kind: Kind) -> Floats:
    """The posterior with its largest belief as it turns out.

    Args:
        posterior: [steps + 1], sums to 1.
        agreement: whether other samples' steps were compared.
        kind: of the solution.
    """
    mode = int(np.argmax(posterior))
    rest = posterior.copy()
    rest[mode] = 0.0
    left = float(rest.sum())
    if left <= 0.0:
        return posterior
    odds = float(np.exp(np.interp(log_odds(posterior[mode]), KNOTS, MAPS[agreement, kind])))
    second = float(rest.max()) / left
    # At the least as large as the second, which keeps its share of what is left.
    moved = max(odds / (1 + odds), (1 + _EDGE) * second / (1 + second))
    rest *= (1 - moved) / left
    rest[mode] = moved
    return rest


def log_odds(chance: float | Floats) -> Floats:
    """Log odds of a chance, bounded."""
    bounded = np.clip(chance, _EDGE, 1 - _EDGE)
    return np.asarray(np.log(bounded / (1 - bounded)))


def fit_map(beliefs: Floats, right: NDArray[np.bool_]) -> tuple[float, ...]:
    """Log odds at the knots, by penalised likelihood of being right.

    Args:
        beliefs: [n], largest posteriors as the chain has them.
        right: [n], whether they were right.
    """
    found = log_odds(beliefs)
    hats = np.stack([np.interp(found, KNOTS, row) for row in np.eye(len(KNOTS))], axis=1)
    theta = KNOTS.copy()
    for _ in range(100):
        chance = 1 / (1 + np.exp(-hats @ theta))
        slope = hats.T @ (right - chance) - _RIDGE / 4 * (theta - KNOTS)
        curve = (hats.T * (chance * (1 - chance))) @ hats + _RIDGE / 4 * np.eye(len(KNOTS))
        step = np.linalg.solve(curve, slope)
        theta = theta + step / max(1.0, float(np.abs(step).max()))
    rising = isotonic_regression(theta, weights=np.diag(curve)).x
    return tuple(float(t) for t in np.round(rising, 3))
