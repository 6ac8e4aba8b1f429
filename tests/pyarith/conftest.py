"""Problems that the tests of pyarith share."""

from __future__ import annotations

import pytest

from mclabel.core.records import Problem
from mclabel.domains.pyarith.problems import generate_problems


@pytest.fixture(scope="session")
def problems() -> list[Problem]:
    return generate_problems(60, seed=3, split="test")
