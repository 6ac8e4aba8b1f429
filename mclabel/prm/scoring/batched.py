"""Asynchronous scoring in batches: solutions that wait at the same time are scored together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Union

from mclabel.core.errors import EngineDied, UnusableResponse
from mclabel.prm.scoring.aggregate import UnscoredError
from mclabel.prm.scoring.items import SolutionItem
from mclabel.prm.scoring.scorer import close_scorer, get_engine_stats
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.aggregate import StepEstimates


_CORE_TOKENS, _GPU_TOKENS = 16_384, 65_536
"""Maximum number of tokens in a batch, per CPU core and for a GPU."""


def choose_batch_tokens(num_cores: int, *, on_gpu: bool) -> int:
    """Return the maximum number of tokens in a batch, on a GPU or on `num_cores` CPU cores."""
    return _GPU_TOKENS if on_gpu else _CORE_TOKENS * num_cores


class BatchedScorer:
    """Loads a scorer and scores solutions in batches, on one event loop."""

    def __init__(self, load: Callable[[], Any], *, max_tokens: int) -> None:
        """Prepare to score. `start` loads the model.

        Args:
            load: function that returns a `Scorer`.
            max_tokens: maximum number of tokens in a batch.
        """
        self._load, self._max_tokens = load, max_tokens
        self._executor = CpuExecutor()
        self._scorer: Any = None
        self._batches: ScoreQueue | None = None
        self._num_steps = 0

    async def start(self) -> None:
        """Load the model in the thread that also encodes solutions."""
        self._scorer = await self._executor.run(self._load)
        self._batches = ScoreQueue(self._score_batch, max_tokens=self._max_tokens)

    async def score(self, item: SolutionItem) -> tuple[StepEstimates, int]:
        """Score one solution, in a batch with other waiting solutions.

        Returns:
            Scores of the steps, and the number of sampled tokens or, if the scorer does not sample,
            of read tokens.

        Raises:
            TooLongError: the solution is longer than the scorer accepts.
            UnscoredError: the generative PRM gave no verdict.
            DataError: the solution cannot be encoded.
            EngineDied: the device ran out of memory.
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
        """Return the numbers of solutions in progress, and of scored tokens and steps."""
        batches = self._batches
        if batches is None:
            return RunnerState(counters={"num_steps": 0})
        if (stats := get_engine_stats(self._scorer)) is not None:
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
        """Stop scoring and free the model."""
        self._executor.close()
        if self._batches is not None:
            self._batches.close()
        scorer, self._scorer = self._scorer, None
        await asyncio.to_thread(close_scorer, scorer)

    def _score_batch(self, encoded: Any) -> Sequence[ScoreResult]:
        """Score a batch. `ScoreQueue` calls this in a separate thread."""
        import torch

        from mclabel.prm.scoring.score import estimate_steps

        try:
            return estimate_steps(self._scorer, encoded)
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device is out of memory ({error})") from error


# Batching of waiting solutions.
#
# A prefix shared by several solutions of a batch is computed only once. Waiting solutions are
# therefore taken in the order of arrival, which keeps the solutions of a problem together.

ScoreResult = Union["StepEstimates", UnscoredError]
"""Result of a scorer for one solution."""
Score = Callable[[Sequence["EncodedSolution"]], Sequence[ScoreResult]]
"""Function that scores a batch of encoded solutions."""
MAX_SOLUTIONS = 256
"""Maximum number of solutions in a batch."""
WAIT_S = 0.005
"""Seconds between two checks whether enough solutions are encoded for a batch."""


class ScoreQueue:
    """Queue of encoded solutions, which are scored in batches in a thread."""

    def __init__(self, score: Score, *, max_tokens: int) -> None:
        """Create an empty queue of solutions.

        Args:
            score: function that scores a batch of solutions.
            max_tokens: maximum number of tokens in a batch. A longer solution is scored alone.
        """
        self._compute, self._max_tokens = score, max_tokens
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="scores")
        self._waiting: deque[tuple[EncodedSolution, asyncio.Future[ScoreResult]]] = deque()
        self._alone: deque[tuple[EncodedSolution, asyncio.Future[ScoreResult]]] = deque()
        """Solutions of batches that failed with `UnusableResponse`. Each is scored again, alone."""
        self._running: asyncio.Task[None] | None = None
        self.num_live = self.num_tokens = 0
        self.num_coming = 0
        """Number of solutions that are being encoded. An incomplete batch waits for them."""

    @property
    def num_waiting(self) -> int:
        """Return the number of solutions that wait for a batch."""
        return len(self._waiting)

    async def score(self, encoded: EncodedSolution) -> ScoreResult:
        """Return the scores of a solution.

        Raises:
            Exception: the exception that was raised when the solution's batch was scored.
        """
        turn: asyncio.Future[ScoreResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((encoded, turn))
        if self._running is None:
            self._running = asyncio.create_task(self._score_waiting_solutions())
        return await turn

    def close(self) -> None:
        """Drop all waiting solutions and stop scoring."""
        self._waiting.clear()
        self._alone.clear()
        if self._running is not None:
            self._running.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _score_waiting_solutions(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := await self._take_next_batch():
                solutions = [encoded for encoded, _ in batch]
                self.num_live = len(batch)
                try:
                    results = await loop.run_in_executor(self._pool, self._compute, solutions)
                except (
                    UnusableResponse
                ) as error:  # the answer to one solution of the batch is unusable
                    if len(batch) > 1:
                        self._alone.extend(batch)
                    elif not batch[0][1].done():
                        batch[0][1].set_exception(error)
                    continue
                except Exception as error:  # passed on to all callers that wait for this batch
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

    async def _take_next_batch(self) -> list[tuple[EncodedSolution, asyncio.Future[ScoreResult]]]:
        """Return the next batch: solutions with the futures of their scores.

        It is empty if no solution is waiting or being encoded.
        """
        if self._alone:
            return [self._alone.popleft()]
        while self.num_coming and not self._is_full():
            await asyncio.sleep(WAIT_S)
        batch: list[tuple[EncodedSolution, asyncio.Future[ScoreResult]]] = []
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
        """Return whether enough solutions are waiting for a full batch."""
        if len(self._waiting) >= MAX_SOLUTIONS:
            return True
        return sum(len(encoded.ids) for encoded, _ in self._waiting) >= self._max_tokens
