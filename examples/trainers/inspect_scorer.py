"""The grader as a scorer of inspect_ai.

    inspect eval examples/trainers/inspect_scorer.py --model MODEL

In the environment of inspect_ai `pip install .` in a clone of mclabel adds the grader and changes
no version.
"""

from __future__ import annotations

import anyio.to_thread
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState, generate

from mclabel.answers import extract_answer, verdict_on
from mclabel.core.records import Verdict


@scorer(metrics=[accuracy(), stderr()])
def right_answer() -> Scorer:
    """Grades the final answer against any of the targets; the undecided counts in no metric."""

    async def score(state: TaskState, target: Target) -> Score:
        text = state.output.completion
        verdict = await anyio.to_thread.run_sync(verdict_on, text, list(target))
        answer = extract_answer(text)
        if verdict is Verdict.UNKNOWN:
            return Score.unscored(answer=answer, reason="undecided")
        return Score(value=CORRECT if verdict is Verdict.RIGHT else INCORRECT, answer=answer)

    return score


@task
def answers() -> Task:
    """Two problems; put yours here."""
    return Task(
        dataset=[
            Sample(input="What is 2 + 3? Put the answer in \\boxed{}.", target="5"),
            Sample(input="What is a half of a third?", target=["1/6", "one sixth"]),
        ],
        solver=generate(),
        scorer=right_answer(),
    )
