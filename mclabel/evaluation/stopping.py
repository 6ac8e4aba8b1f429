"""Best of N that samples a problem's solutions one after the other, and stops when it is sure.

A PRM that was trained on counts gives the value of a solution as a Beta distribution, that of its
last step (BetaPRM, arXiv 2605.15529). The leader is sure when its value is likely above that of its
rivals: the best solution with *another* answer, and an answer that was not sampled yet, of which
nothing is known. Without the latter, a bad answer that leads worse ones would end the sampling.
The last step's own label is one trial, which teaches no concentration: the one used here is what
the model has learned from the steps before, applied to the last.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import betainc, betaincinv

NUM_POINTS = 64
"""Quantiles of one distribution at which the other is looked up."""
NEAR = 1e-9
"""Distance within which two values are equal."""
Value = tuple[float, float]
"""Mean and concentration of a Beta distribution."""


def num_drawn(
    values: Sequence[Value | None], keys: Sequence[int | str | None], *, stop_when: float
) -> int:
    """Number of samples after which the leader is sure; all of them if it never is.

    Args:
        values: of the samples, in the order in which they are drawn; None of one without scores,
            which does not lead.
        keys: their answers, equal where they mean the same.
        stop_when: chance that the leader is above each rival, from which on it is sure.
    """
    best: dict[int | str | None, Value] = {}
    for number, (value, key) in enumerate(zip(values, keys, strict=True), start=1):
        if value is None or (key in best and best[key][0] >= value[0]):
            continue
        best[key] = value
        leader, *others = sorted(best.values(), key=lambda one: -one[0])
        # Above a uniform value, that of an answer not seen yet, it is with a chance of its mean.
        if leader[0] >= stop_when and (not others or chance_above(leader, others[0]) >= stop_when):
            return number
    return len(values)


def chance_above(value: Value, other: Value) -> float:
    """Chance that the first of two independent values is the higher one; 0.5 of equal ones.

    The mean, over quantiles of the first, of the other's distribution function. Where a
    concentration is low, many values lie closer to 0 or to 1 than floats can tell: what is within
    `NEAR` of each other counts as equal, half above and half below.
    """
    (mean, sure), (other_mean, other_sure) = value, other
    points = betaincinv(mean * sure, (1 - mean) * sure, (np.arange(NUM_POINTS) + 0.5) / NUM_POINTS)
    beside = np.clip([points - NEAR, points + NEAR], 0.0, 1.0)
    found = betainc(other_mean * other_sure, (1 - other_mean) * other_sure, beside)
    return float(found.mean())
