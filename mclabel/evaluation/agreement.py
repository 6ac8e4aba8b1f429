"""Agreement of two judges of the same steps, beyond what chance would give."""

from __future__ import annotations

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
