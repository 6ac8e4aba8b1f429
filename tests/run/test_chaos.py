"""Random faults on S3, on a cluster of two nodes and on a full disk, with benchmark seeds.

The benchmark itself uses seed 0 at its smoke size.
"""

from __future__ import annotations

import pytest

from tests.benchmarks.chaos import run_seed


@pytest.mark.ray
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_the_output_is_exact(seed: int) -> None:
    found = run_seed(seed, num_faults=2, undisturbed_s=10.0)
    assert found.num_kills >= 2
    assert (found.lost, found.duplicated, found.faults) == (0, 0, [])
