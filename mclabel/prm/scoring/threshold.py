"""The threshold under which a step counts as wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from mclabel.core.errors import DataError
from mclabel.core.stats.bootstrap import harmonic_mean
from mclabel.data.readers.judged import JudgedSolution


def first_below(scores: Sequence[float], threshold: float) -> int | None:
    """Index of the first score under the threshold, None for none."""
    return next((i for i, score in enumerate(scores) if score < threshold), None)


def best_threshold(rows: Sequence[JudgedSolution], scores: Mapping[str, Sequence[float]]) -> float:
    """The threshold with the highest F1, over all distinct scores exactly.

    A solution is predicted right for the thresholds in one interval: up to its lowest score where
    no step is wrong; above the score of the wrong step, up to the lowest before it, where one is.
    Between two scores the threshold lies in their middle; of several equally good the lowest is
    taken, which flags least.

    Args:
        rows: with both kinds.
        scores: by id, one a step. Solutions without scores are left out.

    Raises:
        DataError: no scores, or only one kind of solutions.
    """
    rows = [row for row in rows if row.id in scores]
    wrong = sum(row.first_error is not None for row in rows)
    if not 0 < wrong < len(rows):
        raise DataError(
            f"{wrong} scored solutions with a wrong step and {len(rows) - wrong} without: the "
            "threshold is chosen by F1, which needs both. Give a threshold"
        )
    levels = np.array(sorted({score for row in rows for score in scores[row.id]}))
    # Threshold k makes the scores levels[:k] wrong: edges of intervals, to be added up.
    edges = np.zeros((2, len(levels) + 2))
    for row in rows:
        mine, error = scores[row.id], row.first_error
        first = 0 if error is None else np.searchsorted(levels, mine[error]) + 1
        before = mine if error is None else mine[:error]
        last = np.searchsorted(levels, min(before)) if before else len(levels)
        if first <= last:
            edges[int(error is None), first] += 1
            edges[int(error is None), last + 1] -= 1
    hits = edges.cumsum(1)[:, :-1]
    best = int(harmonic_mean(hits[0] / wrong, hits[1] / (len(rows) - wrong)).argmax())
    if best == len(levels):
        return float(np.nextafter(levels[-1], inf))
    if best == 0:
        return float(levels[0])
    middle = float(levels[best - 1] + levels[best]) / 2
    return middle if middle > levels[best - 1] else float(levels[best])
