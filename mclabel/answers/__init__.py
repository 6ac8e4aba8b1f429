"""The answer checker: takes the final answer out of a text and grades it against the gold.

Three-valued: what it cannot decide it calls unknown, which counts neither for nor against a
step. Cheapest layers first: extract, normalise, exact rational or text, structure and exact
algebra, all here; what they leave open is decided by sympy in a worker process. Both have budgets
of counted steps, so that a verdict does not depend on the machine or its load. Nothing that a model
wrote is ever evaluated as code.
"""

from mclabel.answers.checker import (
    Checker,
    default_checker,
    grade,
    grade_completion,
    group_answers,
    group_many,
)
from mclabel.answers.extraction.extract import extract_answer, reference_answer
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
    "grade",
    "grade_completion",
    "group_answers",
    "group_many",
    "reference_answer",
    "verdict_on",
]
