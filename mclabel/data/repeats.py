"""Checks that joined runs hold different solutions, because shared solutions would count twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from mclabel.core.errors import ConfigError
from mclabel.core.seeds import content_id
from mclabel.run.shards.labels import iter_label_tables
from mclabel.run.shards.store import Store

MOST_SHARED = 0.5
"""Largest fraction of the smaller run's solutions that two independent runs may share by chance."""


def check_runs_distinct(runs: Sequence[str], key: str) -> None:
    """Check that no run holds the solutions of another run, as a copy or a regraded run would.

    Solutions are the same if both their ids and their texts are equal. Independent runs of the same
    problems share ids, but share texts only for some easy solutions.

    Args:
        runs: folders or URLs of labels.
        key: setting that names the runs, for the message.

    Raises:
        ConfigError: two runs share solutions. The message names the runs and the number.
        ShardError: a run cannot be read.
    """
    if len(runs) < 2:
        return
    hashes_by_run = [(run, _hash_solutions(run)) for run in runs]
    for (first, first_hashes), (second, second_hashes) in combinations(hashes_by_run, 2):
        num_shared = len(np.intersect1d(first_hashes, second_hashes, assume_unique=True))
        if num_shared > MOST_SHARED * min(len(first_hashes), len(second_hashes)):
            raise ConfigError(
                f"{key}: {second} holds {num_shared:,} of the {len(first_hashes):,} solutions of "
                f"{first}, so each would count twice. Joined runs must hold different solutions: "
                "leave out one of the two"
            )


def _hash_solutions(run: str) -> NDArray[np.uint64]:
    """Return the sorted hashes of the distinct solutions of a run."""
    hashes = [
        int(content_id(row["solution_id"], row["solution"]), 16)
        for _, table in iter_label_tables(Store(run))
        for row in table.select(["solution_id", "solution"]).to_pylist()
    ]
    return np.unique(np.array(hashes, np.uint64))
