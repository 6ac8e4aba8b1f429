"""Grades of completions, as they are recorded: how each ended, its answer and why, and answers
that a solution commits to on its way.

A reasoning trace often says what it takes the answer to be, and goes on to check it (DASH, arXiv
2607.00482, uses such answers without a rollout). The last step is left out: its answer is the
solution's outcome. To grade such answers costs nothing, and each is evidence of its steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mclabel.checkers import Aside, Checker, Grade, GradeItem, here
from mclabel.checkers.guarded import common_reason, is_weak, shown_reason
from mclabel.core.records import FinishReason, Outcome, Problem, Rollout, Solution, Verdict

_OUTCOMES: Mapping[Verdict, Outcome] = {
    Verdict.RIGHT: Outcome.RIGHT,
    Verdict.WRONG: Outcome.WRONG,
    Verdict.UNKNOWN: Outcome.UNGRADED,
}


MAX_REASONS = 20
"""Different reasons that are counted in a shard."""
NO_REASON = "no reason given"
NOT_SAMPLED = "the engine gave no completion"


@dataclass(frozen=True, kw_only=True, slots=True)
class Graded:
    """The way that a completion ended."""

    outcome: Outcome
    prediction: str | None = None
    """The answer that was extracted from the completion."""
    reason: str | None = None
    """Why the checker decided so, on one line of 500 characters at most; None without a grade."""
    failed: bool = False
    """True if a fault of the checker kept it from a verdict: another version may grade it."""


CUT = Graded(outcome=Outcome.TRUNCATED)
"""Grade of a completion that was cut by its length and has no answer."""


def not_sampled(why: str) -> Graded:
    """Return the grade of a completion that the engine could not sample.

    Args:
        why: in words.
    """
    return Graded(outcome=Outcome.UNGRADED, reason=shown_reason(why) or None, failed=True)


def graded(grade: Grade) -> Graded:
    """Return the record of a grade."""
    return Graded(
        outcome=_OUTCOMES[grade.verdict],
        prediction=grade.answer,
        reason=shown_reason(grade.reason) or None,
        failed=grade.failure is not None,
    )


def grade_recorded(
    recorded: Sequence[tuple[Problem, str, FinishReason]],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[Graded]:
    """Grades of completions on record, many at a time.

    Args:
        recorded: problem with its gold; whole text, prefix included; how it ended.
        grade: grade of a checker.
    """
    whole = [
        GradeItem(problem=problem, completion=text)
        for problem, text, end in recorded
        if end == "stop"
    ]
    grades = iter(grade(whole))
    without = {"length": CUT, "failed": not_sampled(NOT_SAMPLED)}
    return [without[end] if end != "stop" else graded(next(grades)) for _, _, end in recorded]


def ungraded_reasons(rollouts: Iterable[Rollout]) -> dict[str, int]:
    """Return how many rollouts could not be graded, by the commonest reasons."""
    reasons = Counter(
        common_reason(rollout.reason or NO_REASON)
        for rollout in rollouts
        if rollout.outcome is Outcome.UNGRADED
    )
    return dict(reasons.most_common(MAX_REASONS))


def num_weak(rollouts: Iterable[Rollout]) -> int:
    """Return how many rollouts have a verdict that is weak (`mclabel.checkers.guarded.is_weak`)."""
    return sum(
        rollout.outcome in (Outcome.RIGHT, Outcome.WRONG) and is_weak(rollout.reason or "")
        for rollout in rollouts
    )


Commitments = tuple[Outcome | None, ...]
"""For each step, how the answer is graded that it states; None where it states none."""


async def commitments(
    problem: Problem, solutions: Sequence[Solution], checker: Checker, aside: Aside = here
) -> list[Commitments]:
    """Return the intermediate answers of some solutions, one tuple per solution.

    Args:
        problem: the problem with its gold.
        solutions: solutions of the problem.
        checker: grades the solutions.
        aside: runs what computes.
    """
    places = [
        (number, place)
        for number, solution in enumerate(solutions)
        for place, step in enumerate(solution.steps[:-1])
        if checker.states_answer(step.text)
    ]
    outcomes: list[list[Outcome | None]] = [[None] * len(entry.steps) for entry in solutions]
    items = [
        GradeItem(problem=problem, completion=solutions[number].steps[place].text)
        for number, place in places
    ]
    grades = await checker.grade(items, aside) if items else []
    for (number, place), grade in zip(places, grades, strict=True):
        outcomes[number][place] = graded(grade).outcome
    return [tuple(entry) for entry in outcomes]
