"""What the rollouts of a whole run show of first errors, whatever estimator asked for them.

The evidence of every problem is that of the posterior estimator
(`mclabel.labeling.estimators.posterior`): rollouts by all completers, the solution's own outcome,
and the agreement of other samples. Its priors are fitted to the run as a whole, which a run that is
under way cannot do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import AUTHOR, LabeledSolution, Rollout
from mclabel.labeling.estimators import ProblemPaths, answer_class
from mclabel.labeling.estimators.posterior.chain import Evidence
from mclabel.labeling.estimators.posterior.estimator import PosteriorEstimator
from mclabel.labeling.estimators.posterior.fit import ByCompleter, Readings, fit_readings
from mclabel.labeling.estimators.posterior.joint import bare_errors, elsewhere
from mclabel.labeling.estimators.posterior.judging import pooled
from mclabel.labeling.estimators.posterior.plan import PlanRequest, error_beliefs
from mclabel.labeling.estimators.posterior.priors import Priors
from mclabel.labeling.labeled import completers_of
from mclabel.labeling.prefixes import PrefixTable

Floats = NDArray[np.float64]
MAX_FITTED = 2000
"""Problems of an answer class, evenly chosen, that priors are fitted to."""


@dataclass(frozen=True, kw_only=True)
class _Problem:
    answer_class: str
    solutions: tuple[str, ...]
    """Ids of those with steps."""
    evidence: Readings


class RunEvidence:
    """Collects the evidence of a run's problems, a few numbers a step."""

    def __init__(self, settings: PosteriorEstimator.Settings) -> None:
        """Begin with nothing.

        Args:
            settings: of the estimator whose evidence it is.
        """
        self._settings = settings
        self._problems: list[_Problem] = []

    def add(self, rows: Sequence[LabeledSolution], rollouts: Sequence[Rollout]) -> None:
        """Add one problem.

        Args:
            rows: its labelled solutions.
            rollouts: from their prefixes. Where their steps are not on record (estimators that
                do not follow them) their outcomes count, and their agreement does not.
        """
        rows = [row for row in rows if row.steps]
        if not rows:
            return
        first = rows[0]
        completers = completers_of(first)
        table = PrefixTable(
            first.problem,
            [row.solution for row in rows],
            free_outcomes=not first.chosen_by_outcome,
            completers=[one.name for one in completers],
        )
        numbers = {prefix.id: number for number, prefix in enumerate(table.prefixes)}
        kind = answer_class(first.problem.answer)
        paths = ProblemPaths(paths=table.paths, answer_class=kind, completers=completers)
        estimator = PosteriorEstimator(self._settings, paths)
        for rollout in rollouts:
            if rollout.prefix_id in numbers:
                received = table.received(numbers[rollout.prefix_id], rollout)
                estimator.record(replace(received, asked=False))
        names = tuple(row.solution.id for row in rows)
        evidence = estimator.evidence()
        self._problems.append(_Problem(answer_class=kind, solutions=names, evidence=evidence))

    def chances(self) -> tuple[list[str], NDArray[np.int64], Floats]:
        """What the evidence shows.

        Returns:
            Ids of the solutions; their numbers of steps [solution]; chances of each first error
            [solution, T + 1], that of none at the index of the number of steps.
        """
        priors = self._fitted()
        found: list[Floats] = []
        for problem in self._problems:
            found += _first_errors(problem, priors)
        ids = [name for problem in self._problems for name in problem.solutions]
        num_steps = np.array([len(one) - 1 for one in found], dtype=np.int64)
        chances = np.zeros((len(found), int(num_steps.max(initial=0)) + 1))
        for row, one in enumerate(found):
            chances[row, : len(one)] = one
        return ids, num_steps, chances

    def _fitted(self) -> Priors:
        by_class: dict[str, list[Readings]] = defaultdict(list)
        for problem in self._problems:
            by_class[problem.answer_class].append(problem.evidence)
        chosen = {
            name: [all_of[i] for i in _evenly(len(all_of), MAX_FITTED)]
            for name, all_of in sorted(by_class.items())
        }
        return fit_readings(chosen).as_written


def _evenly(count: int, most: int) -> list[int]:
    """So many of the indices, evenly spread."""
    return sorted({round(i) for i in np.linspace(0, count - 1, min(count, most))})


def _first_errors(problem: _Problem, priors: Priors) -> list[Floats]:
    """Chances of each first error of each solution [T + 1], the last being that of none."""
    readings, kind = problem.evidence, problem.answer_class
    found = [_of_reading(readings.outcomes, priors, kind, rare_luck=False)]
    if readings.agreement is not None and priors.agreement is not None:
        found.append(_of_reading(readings.agreement, priors.agreement, kind, rare_luck=True))
    return [pooled(of_solution) for of_solution in zip(*found, strict=True)]


def _of_reading(
    reading: ByCompleter, priors: Priors, answer_class: str, *, rare_luck: bool
) -> list[Floats]:
    own, bare = [], []
    for name, evidence in reading.items():
        mine = priors.by(name).of(answer_class)
        if rare_luck and name == AUTHOR and len(reading) == 1:
            mine = mine.with_rare_luck
        counts = np.stack([evidence.right, evidence.wrong, evidence.same, evidence.others])
        request = PlanRequest(
            num_steps=evidence.num_steps,
            counts=counts,
            outcome=evidence.outcome,
            elsewhere=np.ones_like(evidence.elsewhere),
            priors=mine,
            previous=None,
            changed=range(len(evidence.num_steps)),
        )
        own += error_beliefs([request])
        if name != AUTHOR:
            bare.append(bare_errors(evidence.num_steps, mine, counts.shape[2]))
    author: Evidence = reading[AUTHOR]
    chances = own[0] * elsewhere(own, bare)[0] if bare else own[0]
    found = []
    for row, steps in zip(chances, author.num_steps.tolist(), strict=True):
        ordered = np.append(row[steps:0:-1], row[0])
        found.append(ordered / ordered.sum())
    return found
