"""Fixtures that several tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Two threads of torch that share a core with anything else wait for each other."""


@pytest.fixture(scope="session")
def public_data() -> Path:
    """Folder of public data sets beside the checkout; tests on them skip without it."""
    folder = Path(__file__).parents[2] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"public data sets are not at {folder}")
    return folder
