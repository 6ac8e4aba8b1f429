"""The grader as the rubric of an environment of verifiers up to 0.3 (`vf.Rubric`).

    PYTHONPATH=examples/trainers vf-eval verifiers_rubric --model MODEL -n 2

verifiers 0.4 has no rubrics; use verifiers_task.py. To install the grader, run `pip install .` in a
clone of mclabel, in the environment of verifiers. This changes no version of another package.
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
    """Return 1 if the verdict is unknown. This is only a metric, with weight 0 in the reward."""
    return float(await _verdict(completion, answer, parser) is Verdict.UNKNOWN)


async def _verdict(completion: Any, answer: Any, parser: vf.Parser) -> Verdict:
    text = parser.parse_answer(completion)  # the rubric's parser reads the last message
    return await asyncio.to_thread(verdict_on, text or "", answer)


def load_environment(rows: list[dict[str, str]] = ROWS) -> vf.Environment:
    """Make an environment in which the model answers each problem in one turn."""
    rubric = vf.Rubric(funcs=[right_answer, unknown], weights=[1.0, 0.0])
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), rubric=rubric)
