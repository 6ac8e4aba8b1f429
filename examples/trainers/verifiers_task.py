"""The grader as the reward of an environment of verifiers (0.4).

    PYTHONPATH=examples/trainers vf-eval verifiers_task --model MODEL -n 2

`ROWS` are the tasks of the environment; replace them by your own. To install the grader, run
`pip install .` in a clone of mclabel, in the environment of verifiers. This changes no version of
another package.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import verifiers.v1 as vf

from mclabel.answers import verdict_on
from mclabel.core.records import Verdict

ROWS = (
    {"problem": "What is 2 + 3? Put the answer in \\boxed{}.", "answer": "5"},
    {"problem": "What is a half of a third? Put the answer in \\boxed{}.", "answer": "1/6"},
)


class AnswerData(vf.TaskData):
    """A problem, with its text as `prompt` and its gold answer."""

    answer: str


class AnswerTask(vf.Task[AnswerData]):
    """Task that rewards a right final answer."""

    @vf.reward
    async def right_answer(self, trace: vf.Trace) -> float:
        """Return 1 for a right answer, else 0. The metric `unknown` is 1 for an unknown verdict."""
        verdict = await asyncio.to_thread(verdict_on, trace.last_reply, self.data.answer)
        trace.record_metric("unknown", float(verdict is Verdict.UNKNOWN))
        return float(verdict is Verdict.RIGHT)


class AnswerTaskset(vf.Taskset[AnswerTask, vf.TasksetConfig]):
    """Task set with one task per row of `ROWS`."""

    def load(self) -> Iterator[AnswerTask]:
        """Yield a task for each row."""
        for row in ROWS:
            yield AnswerTask(
                AnswerData(prompt=row["problem"], answer=row["answer"]), self.config.task
            )


__all__ = ["AnswerTaskset"]
