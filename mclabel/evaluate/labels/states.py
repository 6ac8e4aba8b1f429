"""States of steps, of solutions that correct themselves, against their exact truth.

Intervals are bootstraps over problems, as in `mclabel.evaluate.labels.quality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import LabeledSolution, Outcome, StepState
from mclabel.core.stats.bootstrap import (
    Estimate,
    ratio_estimate,
    resample_weights,
    sums_by_problem,
)
from mclabel.domains.registry import true_states

WELL: frozenset[StepState | None] = frozenset(("sound", "recovered"))
"""States behind which nothing is wrong."""
ILL: frozenset[StepState | None] = frozenset(("error", "carried"))


@dataclass(frozen=True, kw_only=True)
class StateQuality:
    """How labelled states compare with the truth, over one group of solutions."""

    num_solutions: int
    """With states, and with a right or a wrong outcome."""
    first_error_accuracy: Estimate
    """Share whose labelled first error is the true one, none for none; undecided is not."""
    agreement: Estimate
    """Share of steps that have their true state; a step without a label has not."""
    recovered_steps: Estimate
    """Share of steps that repair an error in truth."""
    recovered_precision: Estimate
    recovered_recall: Estimate
    recovered_f1: Estimate
    false_alarms: Estimate
    """Share of steps, sound or recovered in truth, that are labelled error or carried."""


def exact_states(row: LabeledSolution) -> list[StepState]:
    """The true states of a solution of a built-in domain.

    Raises:
        KeyError: the problem is of no such domain.
    """
    return true_states(row.problem.meta, [step.text for step in row.solution.steps])


def state_quality(
    rows: Iterable[LabeledSolution],
    truth: Callable[[LabeledSolution], Sequence[StepState]] = exact_states,
    *,
    weight: Callable[[LabeledSolution], float] = lambda row: row.stands_for,
    seed: int = 0,
) -> StateQuality | None:
    """Compare labelled states with the truth; None if no step has one.

    Args:
        rows: labelled solutions.
        truth: the true state of each of a solution's steps.
        weight: how many solutions a solution stands for, as in `label_quality`.
        seed: of the bootstrap.
    """
    graded = [
        row
        for row in rows
        if row.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)
        and any(step.state is not None for step in row.steps)
    ]
    if not graded:
        return None
    tallies = np.array([weight(row) * _tally(row, truth(row)) for row in graded])
    sums = sums_by_problem([row.problem.id for row in graded], tallies)
    solutions, hits, steps, same, true, named, both, well, alarms = sums.T
    weights = resample_weights(len(sums), seed)
    return StateQuality(
        num_solutions=len(graded),
        first_error_accuracy=ratio_estimate(hits, solutions, weights),
        agreement=ratio_estimate(same, steps, weights),
        recovered_steps=ratio_estimate(true, steps, weights),
        recovered_precision=ratio_estimate(both, named, weights),
        recovered_recall=ratio_estimate(both, true, weights),
        recovered_f1=ratio_estimate(2 * both, true + named, weights),
        false_alarms=ratio_estimate(alarms, well, weights),
    )


def _tally(row: LabeledSolution, truth: Sequence[StepState]) -> NDArray[np.float64]:
    """Solutions, first errors hit, steps, and steps by what they are and what they are labelled."""
    error = truth.index("error") if "error" in truth else None
    pairs = [(step.state, true) for step, true in zip(row.steps, truth, strict=True)]
    return np.array(
        [
            1,
            row.is_decided and row.first_error == error,
            len(pairs),
            sum(state == true for state, true in pairs),
            sum(true == "recovered" for _, true in pairs),
            sum(state == "recovered" for state, _ in pairs),
            sum(state == true == "recovered" for state, true in pairs),
            sum(true in WELL for _, true in pairs),
            sum(true in WELL and state in ILL for state, true in pairs),
        ],
        dtype=np.float64,
    )
