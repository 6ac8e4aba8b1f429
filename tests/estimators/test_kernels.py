"""Every kernel of numpy's x86 wheels gives bit-identical labels."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys

import pytest

from tests.benchmarks.simulation.profiles import simulated_cases
from tests.benchmarks.simulation.replay import Game
from tests.estimators.test_together import estimator_of
from tests.support.kernels import kernels


def digest() -> str:
    """Return a digest of the requested rollouts and the judgements."""
    hasher = hashlib.sha256()
    for profile in ("sharp", "decay"):
        for number, case in enumerate(simulated_cases(profile, 12, seed=5, num_solutions=4)):
            game = Game(estimator_of(case, number), case)
            while game.move():
                pass
            hasher.update(repr(game.end()).encode())
    return hasher.hexdigest()


@pytest.mark.slow
def test_every_kernel_decides_the_same() -> None:
    if not kernels():
        pytest.skip("an x86 CPU on Linux alone has kernels to choose from")
    program = "from tests.estimators.test_kernels import digest; print(digest())"
    running = {
        name: subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **chosen},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, chosen in kernels().items()
    }
    digests = {name: process.communicate()[0].strip() for name, process in running.items()}
    assert all(process.returncode == 0 for process in running.values())
    assert set(digests.values()) == {digest()}
