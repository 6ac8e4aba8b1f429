"""Rows of solutions that were graded, and not rolled out: their last steps take the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.estimators import Completer, ProblemPaths, answer_class, begin_estimator
from mclabel.estimators.outcome import OutcomeEstimator
from mclabel.labeling.labeled import Sampling, labeled_solutions
from mclabel.labeling.prefixes import PrefixTable
from mclabel.records import AUTHOR, Counts, LabeledSolution, Problem, Solution


def unrolled_solutions(
    problem: Problem, prompt: tuple[int, ...], solutions: Sequence[Solution], sampling: Sampling
) -> list[LabeledSolution]:
    """One row a solution, labelled by its outcome alone.

    Args:
        problem: with its gold answer.
        prompt: ids of the rendered problem.
        solutions: graded, in order.
        sampling: of the solutions.
    """
    completers = [Completer()]
    table = PrefixTable(
        problem,
        [solution for solution in solutions if solution.steps],
        free_outcomes=not sampling.chosen_by_outcome,
    )
    settings = OutcomeEstimator.Settings()
    paths = ProblemPaths(
        paths=table.paths, answer_class=answer_class(problem.answer), completers=completers
    )
    estimator = begin_estimator(
        settings, paths, rule="strongest", knowledge=None, min_gain_per_token=None
    )
    judgements = estimator.judge([[Counts() for _ in table.prefixes]])
    return labeled_solutions(
        problem,
        prompt,
        solutions,
        table,
        judgements,
        sampling=sampling,
        completers=completers,
        values_of=AUTHOR,
        priors=None,
        min_gain_per_token=None,
        truncated=settings.truncated,
    )
