"""The grader as the reward of an environment of verifiers (0.4).

    PYTHONPATH=examples/trainers vf-eval verifiers_task --model MODEL -n 2

`ROWS` are its tasks: put yours there. In the environment of verifiers `pip install .` in a clone of
mclabel adds the grader and changes no version.
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
    """A problem as `prompt`, with its gold."""

    answer: str


class AnswerTask(vf.Task[AnswerData]):
    """Rewards a right final answer."""

    @vf.reward
    async def right_answer(self, trace: vf.Trace) -> float:
        """1 for a right answer; else 0, and the metric `unknown` says what was undecided."""
        verdict = await asyncio.to_thread(verdict_on, trace.last_reply, self.data.answer)
        trace.record_metric("unknown", float(verdict is Verdict.UNKNOWN))
        return float(verdict is Verdict.RIGHT)


class AnswerTaskset(vf.Taskset[AnswerTask, vf.TasksetConfig]):
    """The rows as tasks."""

    def load(self) -> Iterator[AnswerTask]:
        """One task a row."""
        for row in ROWS:
            yield AnswerTask(
                AnswerData(prompt=row["problem"], answer=row["answer"]), self.config.task
            )


__all__ = ["AnswerTaskset"]
