"""Makes beliefs mean what they say.

The chain is fitted without truth, and some of what it must believe cannot be seen without: how
often a right answer is reached through a wrong step, and that samples of one policy err alike, so
that they are less evidence than as many independent ones. So the largest belief is moved on the
scale of log odds, `a + b * log odds`, apart for solutions that ended right and that did not, and
the others keep their proportions. The likeliest first error stays what it is.

The numbers were fitted by likelihood on the truth of arith's *validation* problems, at several
prices together (`tests/benchmarks/estimators_calibration.py`), and reported on test problems. They
hold for the bundled policy and its problems. In another domain other errors are lucky, and beliefs
rank solutions well but are promises only where the same was done with some truth of that domain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAPS: dict[tuple[bool, bool], tuple[float, float]] = {
    (False, False): (0.0, 1.0),
    (False, True): (0.0, 1.0),
    (True, False): (0.0, 1.0),
    (True, True): (0.0, 1.0),
}
"""`a` and `b`, by whether agreement was used and whether the solution ended right."""

_EDGE = 1e-6


def calibrated(posterior: Floats, *, agreement: bool, ended_right: bool) -> Floats:
    """The posterior with its largest belief as it turns out.

    Args:
        posterior: [steps + 1], sums to 1.
        agreement: whether other samples' steps were compared.
        ended_right: whether the solution's outcome is right.
    """
    mode = int(np.argmax(posterior))
    rest = posterior.copy()
    rest[mode] = 0.0
    left = float(rest.sum())
    if left <= 0.0:
        return posterior
    a, b = MAPS[agreement, ended_right]
    top = min(max(float(posterior[mode]), _EDGE), 1 - _EDGE)
    odds = float(np.exp(a + b * np.log(top / (1 - top))))
    second = float(rest.max()) / left
    # At the least as large as the second, which keeps its share of what is left.
    moved = max(odds / (1 + odds), (1 + _EDGE) * second / (1 + second))
    rest *= (1 - moved) / left
    rest[mode] = moved
    return rest


def fit_map(beliefs: Floats, right: NDArray[np.bool_]) -> tuple[float, float]:
    """`a` and `b` by likelihood: logistic regression of being right on log odds.

    Args:
        beliefs: [n], largest posteriors as the chain has them.
        right: [n], whether they were right.
    """
    top = np.clip(beliefs, _EDGE, 1 - _EDGE)
    x = np.stack([np.ones_like(top), np.log(top / (1 - top))], axis=1)
    w = np.array([0.0, 1.0])
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        hessian = (x * (p * (1 - p))[:, None]).T @ x + 1e-6 * np.eye(2)
        step = np.linalg.solve(hessian, x.T @ (right - p))
        w = w + step
        if float(np.abs(step).max()) < 1e-9:
            break
    return float(w[0]), float(w[1])
