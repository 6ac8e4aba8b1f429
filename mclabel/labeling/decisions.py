"""Batched decisions of many problems' estimators, and updates of a run's learner in a fixed order.

A decision chooses the prefixes from which an estimator requests its next rollouts. A Bayesian
estimator computes decisions far faster in a batch than one by one. So an estimator whose decision
is due waits for other estimators for a moment that is much shorter than a rollout. The batch is
then computed off the event loop. The batch starts early once all active problems wait, since no
further decision can become due. Batching does not change the result of a decision.

A learner estimates the estimators' parameters (their knowledge) from finished problems. Problems
that finish first are not representative: they are short and needed few rollouts. So the learner is
updated in the order in which problems started. Problem n uses the knowledge learned from the
problems up to n - `RunLearner.lag`, whatever other problems are finished by then. The labels of one
engine therefore do not depend on timing, and a problem waits only for problems that started long
before it. Knowledge from other engines is merged whenever a block starts.
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
"""Seconds that the first request of a batch waits for further requests."""
MAX_BATCH_DECISIONS = 64
"""Maximum number of decisions in a batch. Such a batch takes a few milliseconds to compute."""


_DecisionRequest = tuple[ProblemEstimator, int]
"""A request for a decision: the estimator, and the current number of its problem's prefixes."""


class DecisionBatcher:
    """Collects the decisions that are due on one event loop, and computes them in batches."""

    def __init__(self, executor: CpuExecutor) -> None:
        """Start with an empty batch.

        Args:
            executor: executor that computes decisions.
        """
        self._executor = executor
        self._due: list[tuple[_DecisionRequest, asyncio.Future[Sequence[Probe]]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._num_active_problems = 0
        self._batch_tasks: set[asyncio.Task[None]] = set()

    @contextmanager
    def register_active_problem(self) -> Iterator[None]:
        """Count one more active problem while the context is open. An active problem may request
        decisions, and a batch starts early only if all active problems wait.
        """
        self._num_active_problems += 1
        try:
            yield
        finally:
            self._num_active_problems -= 1
            self._begin_batch_or_wait()

    async def request_probes(
        self, estimator: ProblemEstimator, num_prefixes: int
    ) -> Sequence[Probe]:
        """Return the rollouts that an estimator requests, computed in a batch with other decisions.

        Args:
            estimator: estimator whose decision is due.
            num_prefixes: current number of prefixes of the estimator's problem.
        """
        result: asyncio.Future[Sequence[Probe]] = asyncio.get_running_loop().create_future()
        self._due.append(((estimator, num_prefixes), result))
        self._begin_batch_or_wait()
        return await result

    def _begin_batch_or_wait(self) -> None:
        """Start the batch now if it is full or all active problems wait, else after `WINDOW_S`
        seconds.
        """
        if len(self._due) >= min(MAX_BATCH_DECISIONS, max(1, self._num_active_problems)):
            self._begin_batch()
        elif self._due and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WINDOW_S, self._begin_batch)

    def _begin_batch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due, self._due = [request for request in self._due if not request[1].done()], []
        if due:
            task = asyncio.get_running_loop().create_task(self._answer_requests(due))
            self._batch_tasks.add(task)
            task.add_done_callback(self._batch_tasks.discard)

    async def _answer_requests(
        self, due: list[tuple[_DecisionRequest, asyncio.Future[Sequence[Probe]]]]
    ) -> None:
        try:
            requests = await self._executor.run(self.decide_batch, [request for request, _ in due])
        except Exception as error:  # every waiting caller receives the error
            for _, result in due:
                if not result.done():
                    result.set_exception(error)
            return
        for (_, result), wanted in zip(due, requests, strict=True):
            if not result.done():
                result.set_result(wanted)

    def decide_batch(self, requests: Sequence[_DecisionRequest]) -> list[Sequence[Probe]]:
        """Return the rollouts that each estimator requests, computed in one batch."""
        decide_together(estimator for checked, _ in requests for estimator in checked.estimators)
        return [checked.wanted(num_prefixes) for checked, num_prefixes in requests]


@dataclass(frozen=True, kw_only=True)
class LearnerState:
    """Snapshot of a run's learner, with which the estimators of later problems start."""

    knowledge: Knowledge
    """Fitted parameters with which the estimator starts."""
    min_gain: float | None
    """Minimum expected gain for which an estimator requests rollouts; None if it has no such
    threshold."""

    @classmethod
    def from_learner(cls, learner: RunLearner) -> LearnerState:
        """Return a snapshot of a learner's current state."""
        return cls(knowledge=learner.knowledge, min_gain=learner.min_gain)


class LearningTicket:
    """Position of one problem in the order in which the learner is updated.

    The ticket is opened before the problem's solutions are sampled, and closed when the problem
    ends.
    """

    def __init__(self, learning_queue: LearningQueue, number: int) -> None:
        """Open a ticket; call `LearningQueue.open_ticket` instead of this.

        Args:
            learning_queue: queue that the ticket belongs to.
            number: index of the problem in the order in which problems started, from 0.
        """
        self._learning_queue, self.number = learning_queue, number
        self.is_open = True
        self.record_results: Callable[[], None] | None = None
        """Function that gives the problem's results to the learner; None if there are no results.
        """

    async def wait_for_state(self) -> LearnerState:
        """Wait until the learner has received the problems that this problem learns from.

        Returns:
            The learner's state after these problems.
        """
        return await self._learning_queue.wait_for_state(self.number)

    async def submit_results(
        self, estimator: ProblemEstimator, paths: ProblemPaths, *, num_tokens: int
    ) -> None:
        """Update the learner with this problem's results, after all problems that started earlier.

        Args:
            estimator: finished estimator of the problem.
            paths: paths of the problem's solutions through its prefixes.
            num_tokens: number of tokens of the problem's rollouts.
        """
        learner = self._learning_queue.learner
        self.record_results = lambda: estimator.record_evidence(
            learner, paths, num_tokens=num_tokens
        )
        await self.close()

    async def close(self) -> None:
        """Close the ticket; call this also if the problem has no results.

        Closing it again has no effect.
        """
        if self.is_open:
            self.is_open = False
            await self._learning_queue.learn_from_finished_problems()


class LearningQueue:
    """Tickets of the problems on one engine, in the order in which the problems started.

    A queue may be used only on the engine's event loop.
    """

    def __init__(
        self, learner: RunLearner, executor: CpuExecutor, *, fit: Callable[[], None]
    ) -> None:
        """Start with an empty queue.

        Args:
            learner: learner of the run.
            executor: executor that gives finished problems to the learner.
            fit: function that fits the learner to the problems received so far; called in a
                thread.
        """
        self.learner, self._executor, self._fit = learner, executor, fit
        self._tickets: deque[LearningTicket] = deque()
        self._num_begun = self._num_learned = 0
        self._states = deque([LearnerState.from_learner(self.learner)], maxlen=MAX_LAG + 1)
        """Learner states after each of the latest problems that the learner received."""
        self._learning_lock = asyncio.Lock()
        self._changed = asyncio.Condition()

    def open_ticket(self) -> LearningTicket:
        """Open a ticket for a problem that starts now."""
        ticket = LearningTicket(self, self._num_begun)
        self._num_begun += 1
        self._tickets.append(ticket)
        return ticket

    def refresh_first_state(self) -> None:
        """Replace the first state by the learner's current state, which includes the merged
        knowledge of other engines.

        This has no effect once the learner has received a problem of this engine.
        """
        if self._num_learned == 0:
            self._states[0] = LearnerState.from_learner(self.learner)

    async def wait_for_state(self, problem_index: int) -> LearnerState:
        """Wait until the learner has received all problems that a problem learns from.

        Args:
            problem_index: index of the problem in the order in which problems started, from 0.

        Returns:
            The learner's state after these problems.
        """
        num_needed = max(0, problem_index + 1 - self.learner.lag(problem_index))
        async with self._changed:
            await self._changed.wait_for(lambda: self._num_learned >= num_needed)
        return self._states[num_needed - self._num_learned - 1]

    async def learn_from_finished_problems(self) -> None:
        """Update the learner with the closed tickets at the head of the queue."""
        async with self._learning_lock:
            while self._tickets and not self._tickets[0].is_open:
                ticket = self._tickets.popleft()
                try:
                    if ticket.record_results is not None:
                        await self._executor.run(ticket.record_results)
                        if self.learner.is_due:
                            await asyncio.to_thread(self._fit)
                finally:  # the queue goes on even if this problem's block is cancelled meanwhile
                    self._num_learned += 1
                    self._states.append(LearnerState.from_learner(self.learner))
                    async with self._changed:
                        self._changed.notify_all()
