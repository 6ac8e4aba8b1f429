"""Agreement of two judges of the same steps, beyond what chance would give."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from mclabel.evaluation.bootstrap import shares


def cohen_kappa(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cohen's kappa: (observed - expected agreement) / (1 - expected agreement).

    NaN where both judges give every step the same class: chance alone would agree as well.

    Args:
        counts: how often each pair of classes was given [..., one's classes, the other's].
    """
    total = counts.sum((-2, -1))
    observed = shares(np.trace(counts, axis1=-2, axis2=-1), total)
    expected = shares((counts.sum(-1) * counts.sum(-2)).sum(-1), total * total)
    return shares(observed - expected, 1 - expected)


def nominal_alpha(
    units: Sequence[Sequence[Hashable]],
) -> tuple[NDArray[np.float64], Callable[[NDArray[np.float64]], NDArray[np.float64]]]:
    """Krippendorff's alpha for names, as sums over units that can be resampled.

    alpha = 1 - observed / expected disagreement (Krippendorff 2011, Computing Krippendorff's
    Alpha-Reliability). NaN where all judges give all units the same name.

    Args:
        units: the names that judges gave each unit, two or more a unit.

    Returns:
        What each unit adds to the sums [units, 1 + names], and alpha from such sums.
    """
    names = {name: i for i, name in enumerate(dict.fromkeys(n for unit in units for n in unit))}
    table = np.zeros((len(units), 1 + len(names)))
    for row, unit in zip(table, units, strict=True):
        for name in unit:
            row[1 + names[name]] += 1
        differing = len(unit) ** 2 - (row[1:] ** 2).sum()
        row[0] = differing / (len(unit) - 1)

    def alpha(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        total = sums[..., 1:].sum(-1)
        expected = total**2 - (sums[..., 1:] ** 2).sum(-1)
        return 1 - shares(sums[..., 0] * (total - 1), expected)

    return table, alpha
