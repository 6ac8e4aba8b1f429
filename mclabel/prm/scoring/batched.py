"""A scorer that is loaded where it is used, and scores solutions together as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mclabel.errors import EngineDied
from mclabel.prm.scoring.batches import MAX_SOLUTIONS, ScoreBatches
from mclabel.prm.scoring.items import SolutionItem
from mclabel.work.desk import Desk
from mclabel.work.task import RunnerState

if TYPE_CHECKING:
    from mclabel.prm.examples.encode import EncodedSolution
    from mclabel.prm.scoring.score import StepEstimates


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
        self._desk = Desk()
        self._scorer: Any = None
        self._batches: ScoreBatches | None = None
        self._num_steps = 0

    async def start(self) -> None:
        """Load the model, in the thread that prepares its input."""
        self._scorer = await self._desk.run(self._load)
        self._batches = ScoreBatches(self._score, max_tokens=self._max_tokens)

    async def score(self, item: SolutionItem) -> tuple[StepEstimates, int]:
        """Score one solution, together with others that wait.

        Returns:
            What the scorer says of the steps, and the tokens that were read.

        Raises:
            TooLongError: it is longer than the scorer takes.
            DataError: it cannot be encoded.
            EngineDied: the device has no memory left.
        """
        assert self._batches is not None, "start() first"
        self._batches.num_coming += 1
        try:
            encoded: EncodedSolution = await self._desk.run(
                self._scorer.encode, item.problem, item.steps, item.place
            )
        finally:
            self._batches.num_coming -= 1
        found = await self._batches.score(encoded)
        self._num_steps += len(found.scores)
        return found, len(encoded.ids)

    def state(self) -> RunnerState:
        """The solutions that are scored now, and tokens and steps scored."""
        batches = self._batches
        if batches is None:
            return RunnerState(counters={"num_steps": 0})
        return RunnerState(
            num_live=batches.num_live,
            max_live=MAX_SOLUTIONS,
            num_waiting=batches.num_waiting,
            num_tokens=batches.num_tokens,
            counters={"num_steps": self._num_steps},
        )

    def close(self) -> None:
        """Free the model."""
        self._desk.close()
        if self._batches is not None:
            self._batches.close()
        self._scorer = None

    def _score(self, encoded: Any) -> list[StepEstimates]:
        """Score a batch, in a thread of its own."""
        import torch

        from mclabel.prm.scoring.score import estimate_steps

        try:
            return estimate_steps(self._scorer, encoded)
        except torch.OutOfMemoryError as error:
            raise EngineDied(f"the device has no memory left ({error})") from error
