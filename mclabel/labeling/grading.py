"""Grades of completions, as they are recorded: how each ended, its answer, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mclabel.checkers import Grade, GradeItem
from mclabel.data.shards.rejects import bounded
from mclabel.records import FinishReason, Outcome, Problem, Verdict

_OUTCOMES: Mapping[Verdict, Outcome] = {
    Verdict.RIGHT: Outcome.RIGHT,
    Verdict.WRONG: Outcome.WRONG,
    Verdict.UNKNOWN: Outcome.UNGRADED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """How a completion ended."""

    outcome: Outcome
    prediction: str | None = None
    """The answer that was read out of it."""
    reason: str | None = None
    """Why the checker decided so, on one line of 500 characters at most; None without a grade."""
    failed: bool = False
    """Whether a fault of the checker kept it from a verdict: another version may grade it."""


CUT = Graded(outcome=Outcome.TRUNCATED)
"""Of a completion that was cut by its length, which has no answer."""


def graded(grade: Grade) -> Graded:
    """What is recorded of a grade; a reason may be a user's text, which UTF-8 may not hold."""
    reason = bounded(grade.reason).encode(errors="replace").decode() if grade.reason else None
    return Graded(
        outcome=_OUTCOMES[grade.verdict],
        prediction=grade.answer,
        reason=reason,
        failed=grade.failure is not None,
    )


def grade_recorded(
    recorded: Sequence[tuple[Problem, str, FinishReason]],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Graded]:
    """Grades of completions on record, many at a time.

    Args:
        recorded: problem with its gold; whole text, prefix included; how it ended.
        grade: of a checker.
    """
    whole = [
        GradeItem(problem=problem, completion=text)
        for problem, text, end in recorded
        if end != "length"
    ]
    grades = iter(grade(whole))
    return [CUT if end == "length" else graded(next(grades)) for _, _, end in recorded]
