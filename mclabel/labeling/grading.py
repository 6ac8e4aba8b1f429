"""Grades of completions in the form that is recorded, and grades of intermediate answers.

A recorded grade holds the outcome, the extracted answer and the checker's reason.

A reasoning trace often states an answer before its end, and then checks the answer. Grading such an
intermediate answer costs no rollout and indicates whether the steps before it are right (DASH,
arXiv 2607.00482). The last step has no intermediate answer, because its answer is the solution's
outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from mclabel.checkers import Checker, Grade, GradeItem, ThreadRunner, run_inline
from mclabel.checkers.guarded import format_reason, is_guessed_or_forgeable, strip_fault_message
from mclabel.core.records import FinishReason, Outcome, Problem, Rollout, Solution, Verdict

_OUTCOMES: Mapping[Verdict, Outcome] = {
    Verdict.RIGHT: Outcome.RIGHT,
    Verdict.WRONG: Outcome.WRONG,
    Verdict.UNKNOWN: Outcome.UNGRADED,
}


MAX_REASONS = 20
"""Maximum number of different reasons that a shard's metadata counts."""
NO_REASON = "no reason given"
"""Reason under which ungraded rollouts without a recorded reason are counted."""
NOT_SAMPLED = "the engine gave no completion"
"""Reason recorded for a completion that the engine failed to sample."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GradeRecord:
    """Recorded grade of one completion."""

    outcome: Outcome
    prediction: str | None = None
    """Answer that the checker extracted from the completion; None if it found no answer."""
    reason: str | None = None
    """Checker's reason for the outcome, on one line of at most 500 characters; None if there is no
    reason."""
    failed: bool = False
    """True if an error of the checker or the engine prevented a verdict, so that grading may be
    repeated.
    """


TRUNCATED_GRADE = GradeRecord(outcome=Outcome.TRUNCATED)
"""Grade of a completion that was truncated by a length limit, and so has no answer."""


def make_failed_grade_record(reason: str) -> GradeRecord:
    """Return the grade of a completion that the engine could not sample.

    Args:
        reason: reason to record, in words.
    """
    return GradeRecord(outcome=Outcome.UNGRADED, reason=format_reason(reason) or None, failed=True)


def to_grade_record(grade: Grade) -> GradeRecord:
    """Convert a checker's grade to the form that is recorded."""
    return GradeRecord(
        outcome=_OUTCOMES[grade.verdict],
        prediction=grade.answer,
        reason=format_reason(grade.reason) or None,
        failed=grade.failure is not None,
    )


def grade_recorded_completions(
    completions: Sequence[tuple[Problem, str, FinishReason]],
    grade: Callable[[Sequence[GradeItem]], Sequence[Grade]],
) -> list[GradeRecord]:
    """Grade recorded completions in one batch.

    Args:
        completions: for each completion, its problem with the gold answer, its full text including
            the prefix, and its finish reason.
        grade: function of a checker that grades a batch.
    """
    whole = [
        GradeItem(problem=problem, completion=text)
        for problem, text, end in completions
        if end == "stop"
    ]
    grades = iter(grade(whole))
    without = {"length": TRUNCATED_GRADE, "failed": make_failed_grade_record(NOT_SAMPLED)}
    return [
        without[end] if end != "stop" else to_grade_record(next(grades))
        for _, _, end in completions
    ]


def count_ungraded_reasons(rollouts: Iterable[Rollout]) -> dict[str, int]:
    """Count the ungraded rollouts by reason, for the `MAX_REASONS` most common reasons."""
    reasons = Counter(
        strip_fault_message(rollout.reason or NO_REASON)
        for rollout in rollouts
        if rollout.outcome is Outcome.UNGRADED
    )
    return dict(reasons.most_common(MAX_REASONS))


def count_weak_verdicts(rollouts: Iterable[Rollout]) -> int:
    """Count the rollouts with an uncertain verdict: the checker guessed which part is the answer,
    or the program could have forged its test result.
    """
    return sum(
        rollout.outcome in (Outcome.RIGHT, Outcome.WRONG)
        and is_guessed_or_forgeable(rollout.reason or "")
        for rollout in rollouts
    )


IntermediateOutcomes = tuple[Outcome | None, ...]
"""For each step of a solution, the outcome of the intermediate answer that it states; None if it
states no answer. The last entry is always None."""


async def grade_intermediate_answers(
    problem: Problem,
    solutions: Sequence[Solution],
    checker: Checker,
    run_in_thread: ThreadRunner = run_inline,
) -> list[IntermediateOutcomes]:
    """Grade the intermediate answers of solutions, and return the outcomes of each solution.

    Args:
        problem: problem with its gold answer.
        solutions: solutions of the problem.
        checker: checker that finds and grades the answers.
        run_in_thread: function that runs the checker's computations off the event loop.
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
    grades = await checker.grade(items, run_in_thread) if items else []
    for (number, place), grade in zip(places, grades, strict=True):
        outcomes[number][place] = to_grade_record(grade).outcome
    return [tuple(entry) for entry in outcomes]
