"""Fixtures and hooks that all tests share."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
"""With two threads, torch threads that share a core with other work would wait for each other."""


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs from all tests but those of GPUs, whose expected figures are those of a CPU."""
    if "not gpu" in config.option.markexpr:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run two workers for the default selection only; other tests need the whole machine."""
    return 2 if "not vllm and not ray" in config.option.markexpr else 0


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With one rare mark alone, skip the import of test files that do not contain its name."""
    marker = re.fullmatch(r"(ray|slow|vllm|browser|azure)( and not \w+)*", config.option.markexpr)
    if marker is None or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8").lower()
    return True if re.search(rf"(?<![a-z]){marker[1]}(?![a-z])", text) is None else None


settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")
"""A slow example shows only that the machine is busy, and nothing about the code."""


DATA = "MCLABEL_TEST_DATA"
"""Environment variable that names the folder of public data sets."""


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Return the folder of public data sets, `../shared/data` by default, or skip the test."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get(DATA, beside)).absolute()
    if not folder.is_dir():
        pytest.skip(f"no public data sets at {folder}: set {DATA} to a folder that holds them")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the reasons of all skipped tests, even if pytest is quiet."""
    reasons = Counter(
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section("NOT RUN", red=True)
    for reason, count in reasons.most_common():
        terminalreporter.line(f"{count} tests: {reason}", red=True)


@pytest.fixture(scope="session", autouse=True)
def no_cluster_left() -> Iterator[None]:
    """Let all jobs of this process share a cluster, because a start costs more than most jobs.

    The process leaves the cluster when the session ends.
    """
    yield
    _leave_cluster()


@pytest.fixture(autouse=True)
def no_cluster_unasked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that starts Ray without the mark `ray`.

    The cluster is shut down, because Ray would end this process a minute after losing the head.
    """
    yield
    if request.node.get_closest_marker("ray") is None and "ray" in sys.modules:
        import ray

        if ray.is_initialized():
            ray.shutdown()
            pytest.fail("it has started Ray: set ray.address=none, or mark the test with ray")


@pytest.fixture
def shared_cluster() -> str:
    """Return the address of this process's cluster, for tasks and for jobs in other processes."""
    from mclabel.run.ray_cluster import connect_to_ray

    connect_to_ray("local")
    import ray

    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture
def own_cluster() -> Iterator[None]:
    """Give a test its own cluster, because it starts one or damages it for other tests."""
    _leave_cluster()
    yield
    _leave_cluster()


def _leave_cluster() -> None:
    if "ray" in sys.modules:
        import ray

        ray.shutdown()
