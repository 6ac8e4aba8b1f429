"""True if runs that are joined hold the same solutions, which would then count twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mclabel.core.errors import ConfigError
from mclabel.core.seeds import content_id
from mclabel.run.shards.labels import label_tables
from mclabel.run.shards.store import Store

MOST_SHARED = 0.5
"""Share of the smaller run's solutions that two runs of the same problems may have by chance."""


def check_distinct(runs: Sequence[str], key: str) -> None:
    """Refuse runs of which one holds the solutions of another, as a copy or a regraded run does.

    Solutions are the same if their ids and texts are. Independent runs of the same problems share
    ids, and some of the easiest solutions.

    Args:
        runs: folders or URLs of labels.
        key: setting that names them, for the message.

    Raises:
        ConfigError: names the two runs and the number of solutions that both hold.
        ShardError: a run cannot be read.
    """
    if len(runs) < 2:
        return
    held = [(run, _solutions(run)) for run in runs]
    for (one, ours), (other, theirs) in combinations(held, 2):
        num_shared = len(np.intersect1d(ours, theirs, assume_unique=True))
        if num_shared > MOST_SHARED * min(len(ours), len(theirs)):
            raise ConfigError(
                f"{key}: {other} holds {num_shared:,} of the {len(ours):,} solutions of {one}, so "
                "each would count twice. Joined runs must hold different solutions: leave out one "
                "of the two"
            )


def _solutions(run: str) -> NDArray[np.uint64]:
    """Return a hash of each different solution of a run, in order."""
    names = [
        int(content_id(row["solution_id"], row["solution"]), 16)
        for _, table in label_tables(Store(run))
        for row in table.select(["solution_id", "solution"]).to_pylist()
    ]
    return np.unique(np.array(names, np.uint64))
