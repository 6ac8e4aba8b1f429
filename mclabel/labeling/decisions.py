"""Lets estimators of many problems decide together.

A Bayesian estimator's decision takes far less time in a batch than alone. So whoever has to think
waits a moment for others, much less than a rollout takes, and they decide together; so many at a
time that the event loop is not held up. Estimators notice nothing of it: they want what they would
have wanted alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from mclabel.estimators import Estimator, decide, has_to_think

WINDOW_S = 0.005
MAX_TOGETHER = 64
"""Decisions between two turns of the loop: some milliseconds."""


class Decisions:
    """Collects what is due on one event loop."""

    def __init__(self) -> None:
        self._due: deque[tuple[Estimator, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    async def wanted(self, estimator: Estimator) -> Sequence[int]:
        """What the estimator wants, decided with all others that ask in the same moment."""
        if has_to_think(estimator):
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._due.append((estimator, turn))
            if len(self._due) == MAX_TOGETHER:
                loop.call_soon(self._decide)
            elif self._timer is None:
                self._timer = loop.call_later(WINDOW_S, self._decide)
            await turn
        return estimator.wanted()

    def _decide(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = [self._due.popleft() for _ in range(min(MAX_TOGETHER, len(self._due)))]
        if self._due:
            self._timer = asyncio.get_running_loop().call_later(0, self._decide)
        due = [(estimator, turn) for estimator, turn in due if not turn.done()]
        try:
            decide([estimator for estimator, _ in due])
        except Exception as error:  # to whoever asked
            for _, turn in due:
                turn.set_exception(error)
            return
        for _, turn in due:
            turn.set_result(None)
