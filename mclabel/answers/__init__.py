"""The answer checker: takes the final answer out of a text and grades it against the gold.

Three-valued: what it cannot decide it calls unknown, which counts neither for nor against a
step. Nothing that a model wrote is ever evaluated.
"""

from mclabel.answers.extract import extract_answer
from mclabel.answers.grade import CHECKER_VERSION, Grade, grade, grade_completion
from mclabel.answers.normalize import answer_key

__all__ = [
    "CHECKER_VERSION",
    "Grade",
    "answer_key",
    "extract_answer",
    "grade",
    "grade_completion",
]
