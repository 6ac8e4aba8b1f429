"""The grader as the rubric of an environment of verifiers up to 0.3 (`vf.Rubric`).

    PYTHONPATH=examples/trainers vf-eval verifiers_rubric --model MODEL -n 2

verifiers 0.4 has no rubrics: see verifiers_task.py. In the environment of verifiers `pip install .`
in a clone of mclabel adds the grader and changes no version.
"""

from __future__ import annotations

import asyncio
from typing import Any

import verifiers as vf
from datasets import Dataset

from mclabel.answers import verdict_on
from mclabel.core.records import Verdict

ROWS = [
    {"question": "What is 2 + 3? Put the answer in \\boxed{}.", "answer": "5"},
    {"question": "What is a half of a third? Put the answer in \\boxed{}.", "answer": "1/6"},
]


async def right_answer(completion: Any, answer: Any, parser: vf.Parser) -> float:
    """Reward a right final answer with 1."""
    return float(await _verdict(completion, answer, parser) is Verdict.RIGHT)


async def unknown(completion: Any, answer: Any, parser: vf.Parser) -> float:
    """Whether it could not be decided: a metric, whose weight is 0."""
    return float(await _verdict(completion, answer, parser) is Verdict.UNKNOWN)


async def _verdict(completion: Any, answer: Any, parser: vf.Parser) -> Verdict:
    text = parser.parse_answer(completion)  # of the last message, with the rubric's own parser
    return await asyncio.to_thread(verdict_on, text or "", answer)


def load_environment(rows: list[dict[str, str]] = ROWS) -> vf.Environment:
    """One turn a problem."""
    rubric = vf.Rubric(funcs=[right_answer, unknown], weights=[1.0, 0.0])
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric)
