"""Answers that a solution commits to on its way: graded for nothing, as evidence of its steps.

A reasoning trace often says what it takes the answer to be, and goes on to check it (DASH, arXiv
2607.00482, uses such answers without a rollout). The last step is left out: its answer is the
solution's outcome.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.checkers import Aside, Checker, GradeItem, here
from mclabel.core.records import Outcome, Problem, Solution
from mclabel.labeling.grading import graded

Commitments = tuple[Outcome | None, ...]
"""Of each step, how the answer is graded that it states; None where it states none."""


async def commitments(
    problem: Problem, solutions: Sequence[Solution], checker: Checker, aside: Aside = here
) -> list[Commitments]:
    """The answers on the way of some solutions, one tuple a solution.

    Args:
        problem: with its gold.
        solutions: of the problem.
        checker: that grades them.
        aside: runs what computes.
    """
    places = [
        (number, place)
        for number, solution in enumerate(solutions)
        for place, step in enumerate(solution.steps[:-1])
        if checker.states_answer(step.text)
    ]
    found: list[list[Outcome | None]] = [[None] * len(one.steps) for one in solutions]
    items = [
        GradeItem(problem=problem, completion=solutions[number].steps[place].text)
        for number, place in places
    ]
    grades = await checker.grade(items, aside) if items else []
    for (number, place), grade in zip(places, grades, strict=True):
        found[number][place] = graded(grade).outcome
    return [tuple(one) for one in found]
