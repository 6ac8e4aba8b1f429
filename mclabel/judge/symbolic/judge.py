"""The symbolic checks as a judge. A false equality shows that the first error is at its step or
before it.
"""

from __future__ import annotations

from typing import ClassVar

from mclabel.core.records import Claim, Flag
from mclabel.judge.base import AnswerSampler, Judge, JudgedItem, JudgeSettings, Opinion
from mclabel.judge.symbolic.checking import check_steps
from mclabel.run.cpu_executor import CpuExecutor
from mclabel.run.task import RunnerState


class SymbolicJudge(Judge):
    """Judge that checks every numeric equality of a step with exact arithmetic."""

    class Settings(JudgeSettings):
        """Exact checks of the equalities in every step. This judge has no settings."""

    claim: ClassVar[Claim] = "at_or_before"
    version: ClassVar[str] = "2"

    def __init__(self, settings: Settings, *, seed: int = 0) -> None:
        """Create the thread in which steps are checked."""
        super().__init__(settings, seed=seed)
        self._executor = CpuExecutor()
        self._num_chars = 0

    async def judge(self, item: JudgedItem, ask: AnswerSampler) -> Opinion:
        """Return the false equalities as flags, and the step of the first one as the first error.

        Without a false equality, `first_error` is None. The checks run in a thread.
        """
        flagged = await self._executor.run(lambda: check_steps(item.problem, item.steps))
        self._num_chars += item.num_chars
        flags = tuple(
            Flag(step=place.step, start=place.start, end=place.end, reason=place.reason)
            for place in flagged
        )
        first = min((flag.step for flag in flags), default=None)
        return Opinion(
            is_known=True,
            first_error=first,
            reason="" if first is None else flags[0].reason,
            flags=flags,
        )

    def state(self) -> RunnerState:
        """Return the number of read characters as `num_tokens`, which shows progress."""
        return RunnerState(num_tokens=self._num_chars)

    async def close(self) -> None:
        """End the thread."""
        self._executor.close()
