"""Lets estimators of many problems decide together, and teaches a run's learner in order.

A Bayesian estimator's decision takes far less time in a batch than alone. So an estimator whose
decision is due waits a moment for others, much less than a rollout takes, and they decide together,
off the event loop. The moment ends early once every problem at work waits, as nobody else will ask.
Each then wants what it would have wanted alone.

Problems that are done first are not like the others: they are short, and little had to be rolled
out. So the learner is taught in the order in which problems were begun, and problem n knows what it
had learned after problem n - `RunLearner.lag`, whatever else is done by then. So labels of one
engine do not depend on timing, and a problem waits only for one that was begun so long before it.
(What other engines learn is taken over whenever a block begins.)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mclabel.labeling.estimators import (
    Probe,
    ProblemEstimator,
    ProblemPaths,
    RunLearner,
    decide_together,
)
from mclabel.labeling.estimators.base import MAX_LAG, Knowledge
from mclabel.run.cpu_executor import CpuExecutor

WINDOW_S = 0.015
"""Seconds that the first request of a batch waits for others."""
MAX_TOGETHER = 64
"""Maximum number of decisions in a batch, which take some milliseconds of the executor."""


_Asking = tuple[ProblemEstimator, int]
"""An estimator, and the number of its problem's prefixes."""


class DecisionBatcher:
    """Collects what is due on one event loop."""

    def __init__(self, executor: CpuExecutor) -> None:
        """Begin without anything due.

        Args:
            executor: executor that computes decisions.
        """
        self._executor = executor
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
        """Return what the estimator wants, decided with all others that ask in the same moment.

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
        due, self._due = [asking for asking in self._due if not asking[1].done()], []
        if due:
            task = asyncio.get_running_loop().create_task(self._decide(due))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)

    async def _decide(self, due: list[tuple[_Asking, asyncio.Future[Sequence[Probe]]]]) -> None:
        try:
            requests = await self._executor.run(self.together, [asking for asking, _ in due])
        except Exception as error:  # to whoever asked
            for _, turn in due:
                if not turn.done():
                    turn.set_exception(error)
            return
        for (_, turn), wanted in zip(due, requests, strict=True):
            if not turn.done():
                turn.set_result(wanted)

    def together(self, asking: Sequence[_Asking]) -> list[Sequence[Probe]]:
        """Return what each wants, decided in one batch."""
        decide_together(estimator for checked, _ in asking for estimator in checked.estimators)
        return [checked.wanted(num_prefixes) for checked, num_prefixes in asking]


@dataclass(frozen=True, kw_only=True)
class LearnerState:
    """Knowledge of a learner after some problem."""

    knowledge: Knowledge
    min_gain: float | None

    @classmethod
    def by(cls, learner: RunLearner) -> LearnerState:
        """Return what a learner knows now."""
        return cls(knowledge=learner.knowledge, min_gain=learner.min_gain)


class LearningTicket:
    """A problem, from before its solutions are sampled to its end."""

    def __init__(self, learning_queue: LearningQueue, number: int) -> None:
        """Made by `LearningQueue.begin`.

        Args:
            learning_queue: that it is one of.
            number: in the order in which problems were begun, from 0.
        """
        self._learning_queue, self.number = learning_queue, number
        self.is_open = True
        self.work: Callable[[], None] | None = None
        """Hands it to the learner; None of one that has nothing to teach."""

    async def learned(self) -> LearnerState:
        """Wait for the problems that this one learns from; then what they have shown."""
        return await self._learning_queue.learned(self.number)

    async def teach(
        self, estimator: ProblemEstimator, paths: ProblemPaths, *, num_tokens: int
    ) -> None:
        """Teach what came of the problem, after all that were begun before it.

        Args:
            estimator: estimator of the problem, when it is done.
            paths: paths of the problem.
            num_tokens: number of tokens of its rollouts.
        """
        learner = self._learning_queue.learner
        self.work = lambda: estimator.learned_by(learner, paths, num_tokens=num_tokens)
        await self.leave()

    async def leave(self) -> None:
        """End the problem, which may have come to nothing; a second time is no matter."""
        if self.is_open:
            self.is_open = False
            await self._learning_queue.hand_over()


class LearningQueue:
    """Those of the problems on one engine. Belongs to its event loop."""

    def __init__(
        self, learner: RunLearner, executor: CpuExecutor, *, fit: Callable[[], None]
    ) -> None:
        """Begin without any.

        Args:
            learner: that is taught.
            executor: executor in which it learns.
            fit: lets it learn from what it was taught; called in a thread.
        """
        self.learner, self._executor, self._fit = learner, executor, fit
        self._learning_queue: deque[LearningTicket] = deque()
        self._num_begun = self._num_taught = 0
        self._learned = deque([LearnerState.by(self.learner)], maxlen=MAX_LAG + 1)
        """After each of the latest problems that were taught."""
        self._teaching = asyncio.Lock()
        self._changed = asyncio.Condition()

    def begin(self) -> LearningTicket:
        """Begin a problem."""
        ticket = LearningTicket(self, self._num_begun)
        self._num_begun += 1
        self._learning_queue.append(ticket)
        return ticket

    def adopted(self) -> None:
        """Let problems know what was learned elsewhere, where none was taught here yet."""
        if self._num_taught == 0:
            self._learned[0] = LearnerState.by(self.learner)

    async def learned(self, number: int) -> LearnerState:
        """Wait until a problem's teachers were taught; then what was known after them."""
        num_needed = max(0, number + 1 - self.learner.lag(number))
        async with self._changed:
            await self._changed.wait_for(lambda: self._num_taught >= num_needed)
        return self._learned[num_needed - self._num_taught - 1]

    async def hand_over(self) -> None:
        """Teach those that have ended, as far as all that were begun before them have."""
        async with self._teaching:
            while self._learning_queue and not self._learning_queue[0].is_open:
                ticket = self._learning_queue.popleft()
                try:
                    if ticket.work is not None:
                        await self._executor.run(ticket.work)
                        if self.learner.is_due:
                            await asyncio.to_thread(self._fit)
                finally:  # also where this problem's block is cancelled meanwhile
                    self._num_taught += 1
                    self._learned.append(LearnerState.by(self.learner))
                    async with self._changed:
                        self._changed.notify_all()
