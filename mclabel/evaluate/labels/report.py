"""Every measure of a labelling run's labels, for all of it and for groups of problems.

Groups are rows of their own: answer type, family, level, subject; families that are held out of
training are marked so, and taken together once more.

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
    ratio_estimate,
    resample_weights,
    sums_by_problem,
)
from mclabel.core.stats.values import value
from mclabel.domains.arith.stories import HELD_OUT_FAMILIES
from mclabel.domains.registry import true_states
from mclabel.evaluate.grouping import groups_by_key, solution_meta
from mclabel.evaluate.labels.calibration import (
    Calibration,
    IntervalCheck,
    Prediction,
    calibration,
    check_intervals,
)
from mclabel.evaluate.labels.consensus import ConsensusReport, consensus_report
from mclabel.evaluate.labels.quality import (
    CostEstimate,
    Described,
    LabelQuality,
    Monotonicity,
    Position,
    cost_estimate,
    described,
    label_quality,
    monotonicity,
    values_by_position,
)
from mclabel.evaluate.labels.truth import Truth, TruthKind

WELL: frozenset[StepState | None] = frozenset(("sound", "recovered"))
"""States behind which nothing is wrong."""
ILL: frozenset[StepState | None] = frozenset(("error", "carried"))


@dataclass(frozen=True, kw_only=True)
class StateQuality:
    """Comparison of labelled states with the truth, over one group of solutions."""

    num_solutions: int
    """Number of solutions with states and with a right or a wrong outcome."""
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
    """Return the true states of a solution of a built-in domain.

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
    """Count solutions, first errors hit, steps, and steps by what they are and what they are
    labelled.
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
            sum(true in WELL for _, true in pairs),
            sum(true in WELL and state in ILL for state, true in pairs),
        ],
        dtype=np.float64,
    )


ALL, HELD_OUT = "all", "families held out of training"


@dataclass(frozen=True, kw_only=True)
class GroupReport:
    """One group of solutions."""

    num_problems: int
    num_solutions: int
    outcomes: dict[str, int]
    num_unknown: int
    """Number of solutions whose truth is not known; they do not enter `quality`."""
    quality: LabelQuality | None
    """Quality against the truth; None where it is not known."""
    states: StateQuality | None
    """Quality of the states of steps; None where no step has one, or the truth is not exact."""
    calibration: dict[str, Calibration]
    """Calibration tables, by what predicts and what is observed:

    `value, outcome`: the value of a step against what became of the solution itself, an
    independent draw; of sampled solutions that were not chosen by their outcome, and unbiased
    values, alone.
    `value, sound` and `posterior, sound`: against whether the step is sound in truth.
    `value, reference` and `mean, reference`: against another run's rollouts of the prefix."""
    intervals: dict[str, IntervalCheck]
    """Checks of intervals by label source; empty without another run's rollouts."""
    positions: dict[str, tuple[Position, ...]]
    """Values along solutions: of all, of right and wrong ones, of sound and unsound steps."""
    monotonicity: Monotonicity
    cost: CostEstimate


@dataclass(frozen=True, kw_only=True)
class LabelReport:
    """The result of `mclabel eval labels`."""

    truth: TruthKind | None
    groups: dict[str, GroupReport]
    describes: Described | None = None
    """Population that the shares of quality describe, where the solutions were selected from a
    pool."""
    sources: ConsensusReport | None = None
    """Quality of rollouts and judges, alone and together; None without opinions."""


def label_report(
    rows: Sequence[LabeledSolution],
    truth: Truth | None,
    reference: Mapping[str, Counts] | None = None,
    *,
    judge_rates: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
) -> LabelReport:
    """Measure a run's labels.

    Args:
        rows: all labelled solutions; their order changes nothing.
        truth: the true first errors, if any source has them.
        reference: another run's rollouts by prefix id, which the labels did not see.
        judge_rates: error rates of each judge, as the run has learned them.
        seed: seed of the bootstrap.
    """
    rows = sorted(rows, key=lambda row: (row.problem.id, row.solution.sample_index))
    judged_rows = rows if truth is None else truth.known_rows(rows)
    true_error = None if truth is None else truth.first_error
    return LabelReport(
        truth=None if truth is None else truth.kind,
        groups={
            name: group_report(members, truth, reference or {}, seed=seed)
            for name, members in group_rows(rows).items()
        },
        describes=described(rows),
        sources=consensus_report(judged_rows, true_error, judge_rates or {}, seed=seed),
    )


def group_rows(rows: Sequence[LabeledSolution]) -> dict[str, list[LabeledSolution]]:
    """Return all solutions, and those of every group, by its name."""
    groups = {ALL: list(rows)}
    for key, by_value in groups_by_key(rows, solution_meta).items():
        groups |= {_name(key, meant, members): members for meant, members in by_value.items()}
    held = [row for row in rows if _held_out(row)]
    if held and len(held) < len(rows):
        groups[HELD_OUT] = held
    return groups


def _held_out(row: LabeledSolution) -> bool:
    return "program" in row.problem.meta and row.problem.meta.get("family") in HELD_OUT_FAMILIES


def _name(key: str, meant: str, members: Sequence[LabeledSolution]) -> str:
    held = key == "family" and all(map(_held_out, members))
    return f"{key}: {meant}" + (" (held out)" if held else "")


def group_report(
    rows: list[LabeledSolution],
    truth: Truth | None,
    reference: Mapping[str, Counts],
    *,
    seed: int = 0,
) -> GroupReport:
    """Measure the labels of some solutions: see `label_report`."""
    judged_rows = [] if truth is None else truth.known_rows(rows)
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
        "value, outcome": _against_outcome(graded),
        "value, sound": [] if truth is None else _values_against_truth(judged_rows, truth),
        "posterior, sound": [] if truth is None else _posteriors_against_truth(judged_rows, truth),
        **_against_reference(rows, reference),
    }
    measured = {name: calibration(predicted, seed=seed) for name, predicted in predictions.items()}

    def weight(row: LabeledSolution) -> float:
        return row.stands_for * (1.0 if truth is None else truth.weight(row))

    return GroupReport(
        num_problems=len({row.problem.id for row in rows}),
        num_solutions=len(rows),
        outcomes={str(o): sum(row.solution.outcome is o for row in rows) for o in Outcome},
        num_unknown=0 if truth is None else len(rows) - len(judged_rows),
        quality=None
        if truth is None
        else label_quality(judged_rows, truth.first_error, weight=weight, seed=seed),
        states=None
        if truth is None or truth.kind != "exact"
        else state_quality(judged_rows, weight=weight, seed=seed),
        calibration={
            name: calibrated for name, calibrated in measured.items() if calibrated is not None
        },
        intervals=check_intervals(rows, reference, seed=seed),
        positions=values_by_position(graded, kinds, seed=seed),
        monotonicity=monotonicity(rows, seed=seed),
        cost=cost_estimate(rows, seed=seed),
    )


def _is_sound(row: LabeledSolution, truth: Truth, index: int) -> bool | None:
    if row.solution.id not in truth.first_errors:
        return None
    error = truth.first_error(row)
    return error is None or index < error


def _against_outcome(rows: Sequence[LabeledSolution]) -> list[Prediction]:
    return [
        Prediction(
            problem_id=row.problem.id,
            predicted=step.value,
            observed=float(row.solution.outcome is Outcome.RIGHT),
        )
        for row in rows
        if row.solution.origin == "sampled" and not row.chosen_by_outcome
        for step in row.steps
        if not step.is_outcome and step.value is not None
    ]


def _values_against_truth(rows: Sequence[LabeledSolution], truth: Truth) -> list[Prediction]:
    return [
        Prediction(
            problem_id=row.problem.id,
            predicted=step.value,
            observed=float(_is_sound(row, truth, index) is True),
        )
        for row in rows
        for index, step in enumerate(row.steps)
        if not step.is_outcome and step.value is not None
    ]


def _posteriors_against_truth(rows: Sequence[LabeledSolution], truth: Truth) -> list[Prediction]:
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


def _against_reference(
    rows: Sequence[LabeledSolution], reference: Mapping[str, Counts]
) -> dict[str, list[Prediction]]:
    steps = {
        step.prefix_id: (row.problem.id, step)
        for row in rows
        for step in row.steps
        if not step.is_outcome
    }
    predictions: dict[str, list[Prediction]] = {"value, reference": [], "mean, reference": []}
    for prefix, (problem, step) in steps.items():
        observed = value(reference.get(prefix, Counts()))
        for name, predicted in (("value, reference", step.value), ("mean, reference", step.mean)):
            if observed is not None and predicted is not None:
                predictions[name].append(
                    Prediction(problem_id=problem, predicted=predicted, observed=observed)
                )
    return predictions
