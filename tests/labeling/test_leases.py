"""How many blocks a worker is given: enough to keep its engine full, no more."""

from __future__ import annotations

import pytest

from mclabel.labeling.leases import MAX_LEASES, num_more_leases
from mclabel.policy import EngineStats


@pytest.mark.parametrize(
    ("held", "live", "waiting", "more"),
    [
        (0, 0, 0, 2),  # a new worker
        (1, 256, 5000, 1),  # never one alone: its tail would starve the engine
        (2, 256, 256, 0),  # one engineful waits
        (2, 256, 5000, 0),
        (2, 100, 0, 2),  # at most twice as many before looking again
        (4, 256, 128, 2),  # 384 by four blocks: 512 by six
        (8, 0, 0, 8),  # between two batches of all its blocks
        (MAX_LEASES - 1, 10, 0, 1),
        (MAX_LEASES, 10, 0, 0),
    ],
)
def test_leases_follow_the_engine(held: int, live: int, waiting: int, more: int) -> None:
    stats = EngineStats(num_live=live, num_waiting=waiting, max_live=256)
    assert num_more_leases(held, stats) == more


def test_an_engine_without_a_bound_holds_two_blocks() -> None:
    assert num_more_leases(2, EngineStats(num_live=10)) == 0
