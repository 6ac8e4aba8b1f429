"""The grader as a scorer of inspect_ai.

    inspect eval examples/trainers/inspect_scorer.py --model MODEL

To install the grader, run `pip install .` in a clone of mclabel, in the environment of inspect_ai.
This changes no version of another package.
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
    """Grade the final answer, which is right if it equals any of the targets.

    An answer with an unknown verdict counts in no metric.
    """

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
    """Return a task of two problems. Replace them by your own problems."""
    return Task(
        dataset=[
            Sample(input="What is 2 + 3? Put the answer in \\boxed{}.", target="5"),
            Sample(input="What is a half of a third?", target=["1/6", "one sixth"]),
        ],
        solver=generate(),
        scorer=right_answer(),
    )
