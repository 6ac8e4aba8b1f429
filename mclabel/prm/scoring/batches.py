"""Scores solutions of several blocks together, as many at a time as fill the model.

Solutions that begin alike are computed once where they are scored in one batch, so those that wait
are taken in their order, which keeps the solutions of a problem together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from mclabel.errors import BadAnswer

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.score import StepEstimates

Score = Callable[[Sequence["EncodedSolution"]], list["StepEstimates"]]
MAX_SOLUTIONS = 256
"""Solutions of a batch, at most."""
WAIT_S = 0.005
"""Between two looks at whether enough solutions are encoded for a batch."""


class ScoreBatches:
    """Collects encoded solutions on one event loop, and scores them in a thread."""

    def __init__(self, score: Score, *, max_tokens: int) -> None:
        """Begin with nothing to score.

        Args:
            score: gives what is said of the steps of every solution.
            max_tokens: of a batch; a longer solution is scored alone.
        """
        self._compute, self._max_tokens = score, max_tokens
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scores")
        self._waiting: deque[tuple[EncodedSolution, asyncio.Future[StepEstimates]]] = deque()
        self._alone: deque[tuple[EncodedSolution, asyncio.Future[StepEstimates]]] = deque()
        """Solutions of a batch in which one got a bad answer: each is scored alone."""
        self._running: asyncio.Task[None] | None = None
        self.num_live = self.num_tokens = 0
        self.num_coming = 0
        """Solutions that are being encoded: a batch that is not full waits for them."""

    @property
    def num_waiting(self) -> int:
        """Solutions that wait for a batch."""
        return len(self._waiting)

    async def score(self, encoded: EncodedSolution) -> StepEstimates:
        """The scores of a solution.

        Raises:
            Exception: whatever scoring the batch has raised.
        """
        turn: asyncio.Future[StepEstimates] = asyncio.get_running_loop().create_future()
        self._waiting.append((encoded, turn))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await turn

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._alone.clear()
        if self._running is not None:
            self._running.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := await self._next():
                solutions = [encoded for encoded, _ in batch]
                self.num_live = len(batch)
                try:
                    found = await loop.run_in_executor(self._pool, self._compute, solutions)
                except BadAnswer as error:  # to one of them
                    if len(batch) > 1:
                        self._alone.extend(batch)
                    elif not batch[0][1].done():
                        batch[0][1].set_exception(error)
                    continue
                except Exception as error:  # to whoever waits
                    for _, turn in batch:
                        if not turn.done():
                            turn.set_exception(error)
                    continue
                self.num_tokens += sum(len(encoded.ids) for encoded in solutions)
                for (_, turn), scores in zip(batch, found, strict=True):
                    if not turn.done():
                        turn.set_result(scores)
        finally:
            self.num_live, self._running = 0, None

    async def _next(self) -> list[tuple[EncodedSolution, asyncio.Future[StepEstimates]]]:
        """The solutions of the next batch; none if none waits, and none is coming."""
        if self._alone:
            return [self._alone.popleft()]
        while self.num_coming and not self._is_full():
            await asyncio.sleep(WAIT_S)
        batch: list[tuple[EncodedSolution, asyncio.Future[StepEstimates]]] = []
        num_tokens = 0
        while self._waiting and len(batch) < MAX_SOLUTIONS:
            encoded, turn = self._waiting[0]
            if turn.done():  # cancelled
                self._waiting.popleft()
                continue
            num_tokens += len(encoded.ids)
            if batch and num_tokens > self._max_tokens:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _is_full(self) -> bool:
        """Whether enough is waiting for a batch."""
        if len(self._waiting) >= MAX_SOLUTIONS:
            return True
        return sum(len(encoded.ids) for encoded, _ in self._waiting) >= self._max_tokens
