"""Lets estimators of many problems decide together.

A Bayesian estimator's decision takes far less time in a batch than alone. Completions that an
engine delivers together make decisions due in the same turn of the event loop: these are taken
together, so many at a time that the loop is not held up. Estimators notice nothing of it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from mclabel.estimators import Estimator, decide

MAX_TOGETHER = 64
"""Decisions between two turns of the loop: some milliseconds."""


class Decisions:
    """Collects what is due in a turn of the loop."""

    def __init__(self) -> None:
        self._due: deque[tuple[Estimator, asyncio.Future[None]]] = deque()

    async def wanted(self, estimator: Estimator) -> Sequence[int]:
        """What the estimator wants, decided with all others that ask in this turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._due.append((estimator, turn))
        if len(self._due) == 1:
            loop.call_soon(self._decide)
        await turn
        return estimator.wanted()

    def _decide(self) -> None:
        due = [self._due.popleft() for _ in range(min(MAX_TOGETHER, len(self._due)))]
        if self._due:
            asyncio.get_running_loop().call_soon(self._decide)
        due = [(estimator, turn) for estimator, turn in due if not turn.done()]
        try:
            decide([estimator for estimator, _ in due])
        except Exception as error:  # to whoever asked
            for _, turn in due:
                turn.set_exception(error)
            return
        for _, turn in due:
            turn.set_result(None)
