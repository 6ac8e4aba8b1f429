"""A checker that the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mclabel.answers import Checker


@pytest.fixture(scope="module")
def checker() -> Iterator[Checker]:
    """Yield one checker for several tests, because its host process is slow to start."""
    checker = Checker()
    yield checker
    checker.close()
