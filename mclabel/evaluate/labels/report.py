"""Computes all measures of a run's labels, for the whole run and for groups of problems.

Groups are formed by answer type, family, level and subject of the problems. Families that are held
out of training are marked, and together form one more group.

Intervals are bootstraps over problems, as in `mclabel.evaluate.labels.quality`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Counts, LabeledSolution, Outcome, StepState
from mclabel.core.stats.bootstrap import (
    Estimate,
    draw_resample_weights,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.core.stats.values import estimate_value
from mclabel.domains.arith.stories import HELD_OUT_FAMILIES
from mclabel.domains.registry import find_true_step_states
from mclabel.evaluate.grouping import get_solution_meta, group_by_dividing_fields
from mclabel.evaluate.labels.calibration import (
    Calibration,
    IntervalCheck,
    Prediction,
    check_intervals,
    measure_calibration,
)
from mclabel.evaluate.labels.consensus import ConsensusReport, measure_consensus
from mclabel.evaluate.labels.quality import (
    CostEstimate,
    DescribedPopulation,
    LabelQuality,
    Monotonicity,
    PositionMean,
    estimate_label_cost,
    estimate_values_by_position,
    find_described_population,
    measure_label_quality,
    measure_monotonicity,
)
from mclabel.evaluate.labels.truth import Truth, TruthKind

SOUND_STATES: frozenset[StepState | None] = frozenset(("sound", "recovered"))
"""States of steps after which the solution has no uncorrected error. `sound`: no error so far.
`recovered`: the step repairs an earlier error."""
UNSOUND_STATES: frozenset[StepState | None] = frozenset(("error", "carried"))
"""States of steps after which the solution has an uncorrected error. `error`: the step makes an
error. `carried`: the step builds on an earlier error."""


@dataclass(frozen=True, kw_only=True)
class StateQuality:
    """Comparison of labelled states of steps with the truth, over one group of solutions."""

    num_solutions: int
    """Number of solutions with states and with a right or a wrong outcome."""
    first_error_accuracy: Estimate
    """Share of solutions whose labelled first error, or its absence, is the truth. Undecided
    solutions count as incorrect."""
    agreement: Estimate
    """Share of steps whose labelled state is the true one. Steps without a label count as
    incorrect."""
    recovered_steps: Estimate
    """Share of steps whose true state is recovered, which means that they repair an error."""
    recovered_precision: Estimate
    """Share of steps labelled recovered whose true state is recovered."""
    recovered_recall: Estimate
    """Share of steps with the true state recovered that are labelled recovered."""
    recovered_f1: Estimate
    false_alarms: Estimate
    """Share of truly sound or recovered steps that are labelled error or carried."""


def find_exact_states(row: LabeledSolution) -> list[StepState]:
    """Return the true state of each step of a solution of a built-in domain.

    Raises:
        KeyError: the problem is not of a built-in domain.
    """
    return find_true_step_states(row.problem.meta, [step.text for step in row.solution.steps])


def measure_state_quality(
    rows: Iterable[LabeledSolution],
    find_step_states: Callable[[LabeledSolution], Sequence[StepState]] = find_exact_states,
    *,
    compute_weight: Callable[[LabeledSolution], float] = lambda row: row.pool_weight,
    seed: int = 0,
) -> StateQuality | None:
    """Compare labelled states with the truth; None if no step has a labelled state.

    Args:
        rows: labelled solutions.
        find_step_states: function that returns the true states of a solution's steps.
        compute_weight: function that returns the number of solutions that a solution represents,
            which is 1 / its probability of being drawn.
        seed: seed of the bootstrap.
    """
    graded = [
        row
        for row in rows
        if row.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)
        and any(step.state is not None for step in row.steps)
    ]
    if not graded:
        return None
    tallies = np.array(
        [compute_weight(row) * _count_state_hits(row, find_step_states(row)) for row in graded]
    )
    sums = sum_by_problem([row.problem.id for row in graded], tallies)
    solutions, hits, steps, same, true, named, both, well, alarms = sums.T
    weights = draw_resample_weights(len(sums), seed)
    return StateQuality(
        num_solutions=len(graded),
        first_error_accuracy=estimate_ratio(hits, solutions, weights),
        agreement=estimate_ratio(same, steps, weights),
        recovered_steps=estimate_ratio(true, steps, weights),
        recovered_precision=estimate_ratio(both, named, weights),
        recovered_recall=estimate_ratio(both, true, weights),
        recovered_f1=estimate_ratio(2 * both, true + named, weights),
        false_alarms=estimate_ratio(alarms, well, weights),
    )


def _count_state_hits(row: LabeledSolution, truth: Sequence[StepState]) -> NDArray[np.float64]:
    """Return counts of one solution for `measure_state_quality`, [9].

    The first is 1, and the second is 1 if the labelled first error is the true one. The others are
    numbers of steps: all; labelled with the true state; truly recovered; labelled recovered; truly
    and labelled recovered; truly sound or recovered; and, of the latter, labelled error or carried.
    """
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
            sum(true in SOUND_STATES for _, true in pairs),
            sum(true in SOUND_STATES and state in UNSOUND_STATES for state, true in pairs),
        ],
        dtype=np.float64,
    )


ALL, HELD_OUT = "all", "families held out of training"


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """Measures of one group of solutions."""

    num_problems: int
    num_solutions: int
    outcomes: dict[str, int]
    """Number of solutions by outcome."""
    num_unknown: int
    """Number of solutions whose truth is not known; `quality` does not include them."""
    quality: LabelQuality | None
    """Quality of the labels against the truth; None if the truth is not known."""
    states: StateQuality | None
    """Quality of the states of steps; None if no step has a state, or the truth is not exact."""
    calibration: dict[str, Calibration]
    """Calibration tables by name, which is "prediction, observation".

    The predictions are the value of a step, its posterior mean (`mean`), and the posterior
    probability that it is sound (`posterior`). The observations are the outcome of the step's own
    solution, whether the step is truly sound, and another run's rollouts from the same prefix
    (`reference`). `value, outcome` uses only unbiased values, and only sampled solutions that were
    not chosen by their outcome, so that the outcome is an independent draw.
    """
    intervals: dict[str, IntervalCheck]
    """Checks of intervals by label source; empty without another run's rollouts."""
    positions: dict[str, tuple[PositionMean, ...]]
    """Mean values by position in the solution, by kind: all steps, steps of right and of wrong
    solutions, sound and unsound steps."""
    monotonicity: Monotonicity
    cost: CostEstimate


@dataclass(frozen=True, kw_only=True)
class LabelReport:
    """The result of `mclabel eval labels`."""

    truth: TruthKind | None
    groups: dict[str, GroupReport]
    describes: DescribedPopulation | None = None
    """Solutions that the shares in `quality` describe: the `pool` from which solutions were
    selected, or only the `selection`. None if the solutions were not selected."""
    sources: ConsensusReport | None = None
    """Quality of the labels by rollouts and judges, alone and combined; None unless the run was
    combined from both."""


def measure_labels(
    rows: Sequence[LabeledSolution],
    truth: Truth | None,
    reference: Mapping[str, Counts] | None = None,
    *,
    learned_error_rates: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
) -> LabelReport:
    """Compute all measures of a run's labels, for all solutions and for each group.

    Args:
        rows: all labelled solutions, in any order.
        truth: the true first errors; None if they are unknown.
        reference: counts of another run's rollouts by prefix id. The labels must not be computed
            from these rollouts.
        learned_error_rates: error rates that `mclabel combine` estimated, by judge and name of the
            rate.
        seed: seed of the bootstrap.
    """
    rows = sorted(rows, key=lambda row: (row.problem.id, row.solution.sample_index))
    judged_rows = rows if truth is None else truth.select_known_rows(rows)
    true_error = None if truth is None else truth.first_error
    return LabelReport(
        truth=None if truth is None else truth.kind,
        groups={
            name: measure_group(members, truth, reference or {}, seed=seed)
            for name, members in group_rows(rows).items()
        },
        describes=find_described_population(rows),
        sources=measure_consensus(judged_rows, true_error, learned_error_rates or {}, seed=seed),
    )


def group_rows(rows: Sequence[LabeledSolution]) -> dict[str, list[LabeledSolution]]:
    """Return the solutions by name of the group; the first group contains all solutions."""
    groups = {ALL: list(rows)}
    for key, by_value in group_by_dividing_fields(rows, get_solution_meta).items():
        groups |= {
            _make_group_name(key, value, members): members for value, members in by_value.items()
        }
    held = [row for row in rows if _is_of_held_out_family(row)]
    if held and len(held) < len(rows):
        groups[HELD_OUT] = held
    return groups


def _is_of_held_out_family(row: LabeledSolution) -> bool:
    return "program" in row.problem.meta and row.problem.meta.get("family") in HELD_OUT_FAMILIES


def _make_group_name(key: str, value: str, members: Sequence[LabeledSolution]) -> str:
    held = key == "family" and all(map(_is_of_held_out_family, members))
    return f"{key}: {value}" + (" (held out)" if held else "")


def measure_group(
    rows: list[LabeledSolution],
    truth: Truth | None,
    reference: Mapping[str, Counts],
    *,
    seed: int = 0,
) -> GroupReport:
    """Compute all measures of the labels of one group of solutions.

    Args:
        rows: labelled solutions of the group.
        truth: the true first errors; None if they are unknown.
        reference: counts of another run's rollouts by prefix id; empty without such a run.
        seed: seed of the bootstrap.
    """
    judged_rows = [] if truth is None else truth.select_known_rows(rows)
    graded = [r for r in rows if r.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)]
    kinds = {
        "all": lambda row, index: True,
        "right solutions": lambda row, index: row.solution.outcome is Outcome.RIGHT,
        "wrong solutions": lambda row, index: row.solution.outcome is Outcome.WRONG,
    }
    if truth is not None:
        kinds["sound steps"] = lambda row, index: _is_sound(row, truth, index) is True
        kinds["unsound steps"] = lambda row, index: _is_sound(row, truth, index) is False
    predictions = {
        "value, outcome": _pair_values_with_outcomes(graded),
        "value, sound": [] if truth is None else _pair_values_with_truth(judged_rows, truth),
        "posterior, sound": []
        if truth is None
        else _pair_posteriors_with_truth(judged_rows, truth),
        **_pair_values_with_reference(rows, reference),
    }
    measured = {
        name: measure_calibration(predicted, seed=seed) for name, predicted in predictions.items()
    }

    def compute_weight(row: LabeledSolution) -> float:
        return row.pool_weight * (1.0 if truth is None else truth.weight(row))

    return GroupReport(
        num_problems=len({row.problem.id for row in rows}),
        num_solutions=len(rows),
        outcomes={str(o): sum(row.solution.outcome is o for row in rows) for o in Outcome},
        num_unknown=0 if truth is None else len(rows) - len(judged_rows),
        quality=None
        if truth is None
        else measure_label_quality(
            judged_rows, truth.first_error, compute_weight=compute_weight, seed=seed
        ),
        states=None
        if truth is None or truth.kind != "exact"
        else measure_state_quality(judged_rows, compute_weight=compute_weight, seed=seed),
        calibration={
            name: calibrated for name, calibrated in measured.items() if calibrated is not None
        },
        intervals=check_intervals(rows, reference, seed=seed),
        positions=estimate_values_by_position(graded, kinds, seed=seed),
        monotonicity=measure_monotonicity(rows, seed=seed),
        cost=estimate_label_cost(rows, seed=seed),
    )


def _is_sound(row: LabeledSolution, truth: Truth, index: int) -> bool | None:
    if row.solution.id not in truth.first_errors:
        return None
    error = truth.first_error(row)
    return error is None or index < error


def _pair_values_with_outcomes(rows: Sequence[LabeledSolution]) -> list[Prediction]:
    return [
        Prediction(
            problem_id=row.problem.id,
            predicted=step.value,
            observed=float(row.solution.outcome is Outcome.RIGHT),
        )
        for row in rows
        if row.solution.origin == "sampled" and not row.chosen_by_outcome
        for step in row.steps
        if not step.is_from_outcome and step.value is not None
    ]


def _pair_values_with_truth(rows: Sequence[LabeledSolution], truth: Truth) -> list[Prediction]:
    return [
        Prediction(
            problem_id=row.problem.id,
            predicted=step.value,
            observed=float(_is_sound(row, truth, index) is True),
        )
        for row in rows
        for index, step in enumerate(row.steps)
        if not step.is_from_outcome and step.value is not None
    ]


def _pair_posteriors_with_truth(rows: Sequence[LabeledSolution], truth: Truth) -> list[Prediction]:
    return [
        Prediction(
            problem_id=row.problem.id,
            predicted=min(1.0, max(0.0, 1 - wrong)),
            observed=float(_is_sound(row, truth, index) is True),
        )
        for row in rows
        if row.posterior is not None
        for index, wrong in enumerate(accumulate(row.posterior[:-1]))
    ]


def _pair_values_with_reference(
    rows: Sequence[LabeledSolution], reference: Mapping[str, Counts]
) -> dict[str, list[Prediction]]:
    steps = {
        step.prefix_id: (row.problem.id, step)
        for row in rows
        for step in row.steps
        if not step.is_from_outcome
    }
    predictions: dict[str, list[Prediction]] = {"value, reference": [], "mean, reference": []}
    for prefix, (problem, step) in steps.items():
        observed = estimate_value(reference.get(prefix, Counts()))
        for name, predicted in (("value, reference", step.value), ("mean, reference", step.mean)):
            if observed is not None and predicted is not None:
                predictions[name].append(
                    Prediction(problem_id=problem, predicted=predicted, observed=observed)
                )
    return predictions
