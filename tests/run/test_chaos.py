"""Random faults, seeds of the benchmark: S3, a cluster of two nodes, a full disk.

The benchmark itself, at its smoke size, has seed 0.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = str(Path(__file__).parents[2])


@pytest.fixture(autouse=True)
def benchmarks_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", [ROOT, *sys.path])
    yield


@pytest.mark.ray
@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_is_killed_the_output_is_exact(seed: int) -> None:
    from tests.benchmarks.chaos import run_seed

    found = run_seed(seed, num_faults=2)
    assert found.num_kills >= 2
    assert (found.lost, found.duplicated, found.faults) == (0, 0, [])
