"""The answer checker extracts the final answer of a text and grades it against the gold.

A verdict is right, wrong or unknown. An unknown verdict counts neither for nor against a step.
The checker tries its cheapest layers first: extraction, normalisation, comparison of texts and of
exact rationals, then structure and exact algebra. These layers run in the caller's process. Sympy
decides the remaining pairs of an answer and a gold in a worker process. Both stages have budgets of
counted steps, so that a verdict does not depend on the machine or its load. No text of a model is
ever evaluated as code.
"""

from mclabel.answers.checker import (
    Checker,
    default_checker,
    grade,
    grade_completion,
    group_answers,
    group_answers_per_problem,
)
from mclabel.answers.extraction.extract import extract_answer, extract_reference_answer
from mclabel.answers.golds import verdict_on
from mclabel.answers.grade import CHECKER_VERSION, GUESS, Grade, answer_key
from mclabel.answers.workers.pool import PASSING

__all__ = [
    "CHECKER_VERSION",
    "GUESS",
    "PASSING",
    "Checker",
    "Grade",
    "answer_key",
    "default_checker",
    "extract_answer",
    "extract_reference_answer",
    "grade",
    "grade_completion",
    "group_answers",
    "group_answers_per_problem",
    "verdict_on",
]
