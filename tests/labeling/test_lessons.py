"""A learner is taught in the order in which problems were begun, and first by the pilot alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from mclabel.core.records import Outcome
from mclabel.labeling.decisions import Lessons
from mclabel.labeling.estimators import ProblemPaths, SolutionPath
from mclabel.run.desk import Desk

PATH = SolutionPath(prefixes=(), outcome=Outcome.RIGHT)


class Noting:
    """Learns once it was taught so many problems, of four solutions each."""

    def __init__(self, pilot: int) -> None:
        self.taught: list[int] = []
        self._pilot, self._knows, self._fits = pilot, False, False

    @property
    def num_pilot(self) -> int:
        return 0 if self._knows else self._pilot

    @property
    def is_due(self) -> bool:
        enough = 4 * len(self.taught) >= self._pilot
        return enough and not self._knows and not self._fits

    async def fit(self) -> None:
        """While it learns nothing is due, and it does not know yet."""
        self._fits = True
        await asyncio.sleep(0.02)
        self._knows = True


def problem_of(number: int, learner: Noting) -> Any:
    def learned_by(_: object, __: object, *, num_tokens: int) -> None:
        learner.taught.append(number)

    return SimpleNamespace(learned_by=learned_by)


async def run(learner: Noting, delays: Sequence[float], failing: frozenset[int]) -> list[int]:
    """Problems side by side; the numbers of those that were rolled out before the learner knew."""
    lessons = Lessons(learner, Desk())  # type: ignore[arg-type]
    early: list[int] = []

    async def one(number: int) -> None:
        lesson = lessons.begin(4)
        try:
            await asyncio.sleep(delays[number])
            if number in failing:
                raise RuntimeError
            await lesson.turn()
            if learner.num_pilot:
                early.append(number)
            await asyncio.sleep(delays[-1 - number])
            paths = ProblemPaths(paths=[PATH] * 4)
            await lesson.teach(problem_of(number, learner), paths, num_tokens=1)
            if learner.is_due:
                with lessons.learning():
                    await learner.fit()
        except RuntimeError:
            pass
        finally:
            await lesson.leave()

    await asyncio.wait_for(asyncio.gather(*map(one, range(len(delays)))), 60)
    return early


@pytest.mark.parametrize("seed", range(8))
def test_in_order_and_the_pilot_first_whatever_takes_long(seed: int) -> None:
    rng = random.Random(seed)
    delays = [rng.choice((0.0, 0.002, 0.01)) for _ in range(40)]
    learner = Noting(pilot=20)
    early = asyncio.run(run(learner, delays, frozenset()))
    assert learner.taught == list(range(40))
    assert sorted(early) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("seed", range(8))
def test_problems_that_come_to_nothing_hold_up_nobody(seed: int) -> None:
    rng = random.Random(seed)
    delays = [rng.choice((0.0, 0.002, 0.01)) for _ in range(40)]
    failing = frozenset(rng.sample(range(40), 30)) | {0, 4}
    learner = Noting(pilot=20)
    early = asyncio.run(run(learner, delays, failing))
    assert early == [] or len(early) == 5  # others take the places of those that fail
    assert learner.taught == [number for number in range(40) if number not in failing]


def test_a_pilot_of_which_nothing_comes_is_over() -> None:
    learner = Noting(pilot=20)
    early = asyncio.run(run(learner, [0.0] * 12, frozenset(range(5))))
    assert learner.taught == list(range(5, 12)) and set(early) <= set(range(5, 12))
