"""Lets estimators of many problems decide together.

A Bayesian estimator's decision takes far less time in a batch than alone. So an estimator whose
decision is due waits a moment for others, much less than a rollout takes, and they decide together,
off the event loop. The moment ends early once every problem at work waits, as nobody else will ask.
Each then wants what it would have wanted alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mclabel.labeling.estimators import Probe, ProblemEstimator, decide_together
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
