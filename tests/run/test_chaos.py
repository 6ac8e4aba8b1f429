"""Random faults on a cluster of two nodes; the benchmark's smoke size covers S3 (seed 0)."""

from __future__ import annotations

import pytest

from tests.benchmarks.chaos import run_seed


@pytest.mark.ray
def test_whatever_is_killed_the_output_is_exact() -> None:
    found = run_seed(1, num_faults=2, undisturbed_s=10.0)
    assert found.num_kills >= 2
    assert (found.lost, found.duplicated, found.faults) == (0, 0, [])
