"""Lets estimators of many problems decide together, and teaches a run's learner in order.

A Bayesian estimator's decision takes far less time in a batch than alone. So an estimator whose
decision is due waits a moment for others, much less than a rollout takes, and they decide together,
off the event loop. The moment ends early once every problem at work waits, as nobody else will ask.
Each then wants what it would have wanted alone.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from mclabel.labeling.estimators import (
    Probe,
    ProblemEstimator,
    ProblemPaths,
    RunLearner,
    decide_together,
)
from mclabel.run.desk import Desk

WINDOW_S = 0.015
"""How long the first of a batch waits for others."""
MAX_TOGETHER = 64
"""Decisions at a time: some milliseconds, in which the desk does nothing else."""


_Asking = tuple[ProblemEstimator, int]
"""An estimator, and the number of its problem's prefixes."""


class Decisions:
    """Collects what is due on one event loop."""

    def __init__(self, desk: Desk) -> None:
        """Begin without anything due.

        Args:
            desk: where decisions are computed.
        """
        self._desk = desk
        self._due: list[tuple[_Asking, asyncio.Future[Sequence[Probe]]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._num_at_work = 0
        self._under_way: set[asyncio.Task[None]] = set()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Count a problem as one that may ask, while the context lasts."""
        self._num_at_work += 1
        try:
            yield
        finally:
            self._num_at_work -= 1
            self._begin_or_wait()

    async def wanted(self, estimator: ProblemEstimator, num_prefixes: int) -> Sequence[Probe]:
        """What the estimator wants, decided with all others that ask in the same moment.

        Args:
            estimator: whose decision is due.
            num_prefixes: that its problem has by now.
        """
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[Sequence[Probe]] = loop.create_future()
        self._due.append(((estimator, num_prefixes), turn))
        self._begin_or_wait()
        return await turn

    def _begin_or_wait(self) -> None:
        """Begin if nobody else will ask, or the batch is full; else within the window."""
        if len(self._due) >= min(MAX_TOGETHER, max(1, self._num_at_work)):
            self._begin()
        elif self._due and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = [one for one in self._due if not one[1].done()], []
        if due:
            task = asyncio.get_running_loop().create_task(self._decide(due))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _decide(self, due: list[tuple[_Asking, asyncio.Future[Sequence[Probe]]]]) -> None:
        try:
            found = await self._desk.run(self.together, [asking for asking, _ in due])
        except Exception as error:  # to whoever asked
            for _, turn in due:
                if not turn.done():
                    turn.set_exception(error)
            return
        for (_, turn), wanted in zip(due, found, strict=True):
            if not turn.done():
                turn.set_result(wanted)

    def together(self, asking: Sequence[_Asking]) -> list[Sequence[Probe]]:
        """What each wants, decided in one batch."""
        decide_together(one for checked, _ in asking for one in checked.estimators)
        return [checked.wanted(num_prefixes) for checked, num_prefixes in asking]


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
