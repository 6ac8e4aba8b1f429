"""A scorer that is loaded where it is used, and scores solutions together as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Union

from mclabel.core.errors import BadAnswer, EngineDied
from mclabel.prm.scoring.aggregate import UnscoredError
from mclabel.prm.scoring.items import SolutionItem
from mclabel.prm.scoring.scorer import close_scorer, engine_stats
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.aggregate import StepEstimates


_CORE_TOKENS, _GPU_TOKENS = 16_384, 65_536
"""Tokens that a core, or a GPU, scores at a time."""


def batch_tokens(num_cores: int, *, on_gpu: bool) -> int:
    """Tokens that a GPU, or so many cores, score at a time."""
    return _GPU_TOKENS if on_gpu else _CORE_TOKENS * num_cores


class BatchedScorer:
    """Scores solutions of several blocks together, on one event loop."""

    def __init__(self, load: Callable[[], Any], *, max_tokens: int) -> None:
        """Prepare to score; `start` loads the model.

        Args:
            load: gives a `Scorer`.
            max_tokens: that are scored at a time.
        """
        self._load, self._max_tokens = load, max_tokens
        self._executor = CpuExecutor()
        self._scorer: Any = None
        self._batches: ScoreBatches | None = None
        self._num_steps = 0

    async def start(self) -> None:
        """Load the model, in the thread that prepares its input."""
        self._scorer = await self._executor.run(self._load)
        self._batches = ScoreBatches(self._score, max_tokens=self._max_tokens)

    async def score(self, item: SolutionItem) -> tuple[StepEstimates, int]:
        """Score one solution, together with others that wait.

        Returns:
            What the scorer says of the steps, and the tokens that were sampled, or read where
            nothing is sampled.

        Raises:
            TooLongError: it is longer than the scorer takes.
            UnscoredError: nothing that the scorer sampled gives a verdict.
            DataError: it cannot be encoded.
            EngineDied: the device has no memory left.
        """
        assert self._batches is not None, "start() first"
        self._batches.num_coming += 1
        try:
            encoded: EncodedSolution = await self._executor.run(
                self._scorer.encode, item.problem, item.steps, item.place
            )
        finally:
            self._batches.num_coming -= 1
        estimates = await self._batches.score(encoded)
        if isinstance(estimates, UnscoredError):
            raise estimates
        self._num_steps += len(estimates.scores)
        return estimates, estimates.num_tokens or len(encoded.ids)

    def state(self) -> RunnerState:
        """The solutions that are scored now, and tokens and steps scored."""
        batches = self._batches
        if batches is None:
            return RunnerState(counters={"num_steps": 0})
        if (stats := engine_stats(self._scorer)) is not None:
            return RunnerState(
                num_live=stats.num_live,
                max_live=stats.max_live,
                num_waiting=stats.num_waiting,
                num_tokens=stats.num_sampled_tokens,
                counters={"num_steps": self._num_steps},
                is_steady=stats.counts_as_sampled,
            )
        return RunnerState(
            num_live=batches.num_live,
            max_live=MAX_SOLUTIONS,
            num_waiting=batches.num_waiting,
            num_tokens=batches.num_tokens,
            counters={"num_steps": self._num_steps},
        )

    async def close(self) -> None:
        """Free the model."""
        self._executor.close()
        if self._batches is not None:
            self._batches.close()
        scorer, self._scorer = self._scorer, None
        await asyncio.to_thread(close_scorer, scorer)

    def _score(self, encoded: Any) -> Sequence[Found]:
        """Score a batch, in a thread of its own."""
        import torch

        from mclabel.prm.scoring.score import estimate_steps

        try:
            return estimate_steps(self._scorer, encoded)
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device has no memory left ({error})") from error


# Scores solutions of several blocks together, as many at a time as fill the model.
#
# Solutions that begin alike are computed once where they are scored in one batch, so those that
# wait are taken in their order, which keeps the solutions of a problem together.

Found = Union["StepEstimates", UnscoredError]
"""Result of a scorer for a solution."""
Score = Callable[[Sequence["EncodedSolution"]], Sequence[Found]]
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
            max_tokens: maximum number of tokens of a batch; a longer solution is scored alone.
        """
        self._compute, self._max_tokens = score, max_tokens
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scores")
        self._waiting: deque[tuple[EncodedSolution, asyncio.Future[Found]]] = deque()
        self._alone: deque[tuple[EncodedSolution, asyncio.Future[Found]]] = deque()
        """Solutions of a batch in which one got a bad answer: each is scored alone."""
        self._running: asyncio.Task[None] | None = None
        self.num_live = self.num_tokens = 0
        self.num_coming = 0
        """Solutions that are being encoded: a batch that is not full waits for them."""

    @property
    def num_waiting(self) -> int:
        """Solutions that wait for a batch."""
        return len(self._waiting)

    async def score(self, encoded: EncodedSolution) -> Found:
        """The scores of a solution.

        Raises:
            Exception: whatever scoring the batch has raised.
        """
        turn: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
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
                    results = await loop.run_in_executor(self._pool, self._compute, solutions)
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
                for (_, turn), scores in zip(batch, results, strict=True):
                    if not turn.done():
                        turn.set_result(scores)
        finally:
            self.num_live, self._running = 0, None

    async def _next(self) -> list[tuple[EncodedSolution, asyncio.Future[Found]]]:
        """The solutions of the next batch; none if none waits, and none is coming."""
        if self._alone:
            return [self._alone.popleft()]
        while self.num_coming and not self._is_full():
            await asyncio.sleep(WAIT_S)
        batch: list[tuple[EncodedSolution, asyncio.Future[Found]]] = []
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
        """Return whether enough is waiting for a batch."""
        if len(self._waiting) >= MAX_SOLUTIONS:
            return True
        return sum(len(encoded.ids) for encoded, _ in self._waiting) >= self._max_tokens
