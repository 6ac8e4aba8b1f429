"""Random faults, seeds of the benchmark: S3, a cluster of two nodes, a full disk.

The benchmark itself, at its smoke size, has seed 0.
"""

from __future__ import annotations

import pytest

from tests.benchmarks.chaos import run_seed


@pytest.mark.ray
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_the_output_is_exact(seed: int) -> None:
    found = run_seed(seed, num_faults=2, whole_s=10.0)
    assert found.num_kills >= 2
    assert (found.lost, found.duplicated, found.faults) == (0, 0, [])
