"""Fixtures that several tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Two threads of torch that share a core with anything else wait for each other."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Two at a time of the default selection; what it leaves out wants the machine for itself."""
    return 2 if "not vllm and not ray" in config.option.markexpr else 0


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Folder of public data sets beside the checkout; tests on them skip without it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"public data sets are not at {folder}")
    return folder


@pytest.fixture(autouse=True)
def no_cluster_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A job that has joined a cluster stays with it for as long as the process lives."""
    yield
    if request.node.get_closest_marker("ray") is not None:
        import ray

        ray.shutdown()
