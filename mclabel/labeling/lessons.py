"""What a run's learner is taught, when, and in which order.

Problems that are done first are not like the others: they are short, and little had to be rolled
out. A learner that is taught in the order in which problems end, or in which their solutions do,
takes the run for as easy as those, and on its word all that follow are rolled out too little. So
problems are handed to it in the order in which they were begun; and as long as it knows nothing,
only the first ones, which it is to learn from, are rolled out, while others sample their solutions
and wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from mclabel.labeling.estimators import ProblemEstimator, ProblemPaths, RunLearner
from mclabel.run.desk import Desk

MAX_WAITING = 4096
"""Ended problems that wait for one that was begun before them; it is then passed over."""


class Lesson:
    """A problem, from before its solutions are sampled to its end."""

    def __init__(self, lessons: Lessons, num_solutions: int) -> None:
        """Made by `Lessons.begin`.

        Args:
            lessons: that it is one of.
            num_solutions: that it will have.
        """
        self._lessons, self.num_solutions = lessons, num_solutions
        self.is_open = True
        self.work: Callable[[], None] | None = None
        """Hands it to the learner; None of one that has nothing to teach."""

    async def turn(self) -> None:
        """Wait until the problem may be rolled out."""
        await self._lessons.turn(self)

    async def teach(
        self, estimator: ProblemEstimator, paths: ProblemPaths, *, num_tokens: int
    ) -> None:
        """Teach what came of the problem, after all that were begun before it.

        Args:
            estimator: of the problem, when it is done.
            paths: of the problem.
            num_tokens: of its rollouts.
        """
        learner = self._lessons.learner
        self.work = lambda: estimator.learned_by(learner, paths, num_tokens=num_tokens)
        self.num_solutions = len(paths.paths)
        await self.leave()

    async def leave(self) -> None:
        """End the problem, which may have come to nothing; a second time is no matter."""
        if self.is_open:
            self.is_open = False
            self.num_solutions *= self.work is not None
            await self._lessons.hand_over()


class Lessons:
    """Those of the problems on one engine. Belongs to its event loop."""

    def __init__(self, learner: RunLearner, desk: Desk) -> None:
        """Begin without any.

        Args:
            learner: that is taught.
            desk: where it learns.
        """
        self.learner, self._desk = learner, desk
        self._lessons: deque[Lesson] = deque()
        self._num_teaching = self._num_taught = 0
        self._changed = asyncio.Event()

    def begin(self, num_solutions: int) -> Lesson:
        """Begin a problem.

        Args:
            num_solutions: that it will have.
        """
        lesson = Lesson(self, num_solutions)
        self._lessons.append(lesson)
        return lesson

    async def turn(self, lesson: Lesson) -> None:
        """Wait until a problem may be rolled out."""
        while self._must_wait(lesson):
            self._changed.clear()
            await self._changed.wait()

    async def hand_over(self) -> None:
        """Teach those that have ended, as far as all that were begun before them have."""
        with self.learning():
            while self._lessons and self._is_next():
                lesson = self._lessons.popleft()
                if lesson.work is not None:
                    self._num_taught += lesson.num_solutions
                    await self._desk.run(lesson.work)

    @contextmanager
    def learning(self) -> Iterator[None]:
        """As long as the context lasts nobody is let go: the learner is about to know more."""
        self._num_teaching += 1
        try:
            yield
        finally:
            self._num_teaching -= 1
            self.changed()

    def changed(self) -> None:
        """Let those that wait look again: the learner may have learned something."""
        self._changed.set()

    def _is_next(self) -> bool:
        return not self._lessons[0].is_open or len(self._lessons) > MAX_WAITING

    def _must_wait(self, lesson: Lesson) -> bool:
        """Whether a problem is not in the pilot, and the pilot is not over."""
        missing = self.learner.num_pilot - self._num_taught
        if not self.learner.num_pilot:
            return False
        is_going_on = self._num_teaching > 0 or self.learner.is_due
        for one in self._lessons:  # those of the pilot
            if missing <= 0:
                break
            if one is lesson:
                return False
            missing -= one.num_solutions
            is_going_on = is_going_on or one.is_open
        return is_going_on
