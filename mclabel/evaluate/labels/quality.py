"""Measures step labels against the true first error of each solution, and values by position.

A step is truly *sound* if it and all steps before it are right, else truly wrong. It is labelled
sound if it precedes the labelled first error. A solution is decided if its labels decide which step
is the first error, or that there is none. Wrong steps are the positives of precision and recall.
All intervals are bootstraps over problems, since solutions of one problem are correlated.

Two measures need no truth: the mean value (probability that a rollout from the step is right) by
relative position in the solution, and how often hard labels rise along a solution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Counts, LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    compute_cohen_kappa,
    draw_resample_weights,
    estimate_from_sums,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.domains.registry import find_true_first_error, has_known_truth
from mclabel.evaluate.grouping import MIN_GROUP_PROBLEMS, get_solution_meta, group_by_meta


@dataclass(frozen=True, kw_only=True)
class LabelQuality:
    """Comparison of labels with the truth, over one group of solutions."""

    num_problems: int
    num_solutions: int
    """Number of solutions with a right or a wrong outcome. Only these are compared."""
    num_left_out: int
    """Number of solutions that were cut or could not be graded."""
    pass_at_1: Estimate
    """Share of solutions with a right outcome."""
    wrong_steps: Estimate
    """Share of steps that are truly wrong."""
    decided: Estimate
    """Share of solutions whose labels decide on a first error, or on no error."""
    first_error_accuracy: Estimate
    """Share of solutions whose labelled first error, or its absence, is the truth. Undecided
    solutions count as incorrect."""
    first_error_accuracy_decided: Estimate
    """Share of decided solutions whose labelled first error, or its absence, is the truth."""
    first_error_accuracy_wrong: Estimate
    """Share of solutions with a true error whose labelled first error is the true one."""
    precision: Estimate
    """Share of steps labelled wrong that are truly wrong."""
    recall: Estimate
    """Share of truly wrong steps that are labelled wrong."""
    f1: Estimate
    false_positive_rate: Estimate
    """Share of sound steps that are labelled wrong."""
    right_through_wrong: Estimate
    """Share of solutions with a right answer that have a truly wrong step."""
    lucky_found: Estimate
    """Share of solutions with a right answer and a truly wrong step in which any step is labelled
    as an error."""
    agreement: Estimate
    """Share of steps whose label is the truth."""
    kappa: Estimate
    """Cohen's kappa of labels and truth over steps."""


@dataclass(frozen=True, kw_only=True)
class LabelCost:
    """Number of rollout tokens per labelled solution, with and without shared rollouts."""

    tokens_per_solution: float
    """Sampled tokens per solution. Solutions with the same prefix share the rollouts from it."""
    tokens_per_solution_unshared: float
    """Tokens per solution that would be needed if solutions shared no rollouts."""


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """Sampled tokens and rollouts per labelled solution, with intervals over problems."""

    tokens_per_solution: Estimate
    tokens_per_solution_unshared: Estimate
    rollouts_per_solution: Estimate


def find_exact_first_error(row: LabeledSolution) -> int | None:
    """Return the 0-based index of the true first error of a built-in domain's solution, or None.

    None means that there is no error.

    Raises:
        KeyError: the problem is not of a built-in domain.
    """
    return find_true_first_error(row.problem.meta, [step.text for step in row.solution.steps])


def has_exact_truth(rows: Sequence[LabeledSolution]) -> bool:
    """Return whether the true first errors of all these solutions can be computed.

    They can be for problems of the built-in domains. Return False if there are no solutions.
    """
    return bool(rows) and all(has_known_truth(row.problem.meta) for row in rows)


DescribedPopulation = Literal["pool", "selection"]


def find_described_population(rows: Iterable[LabeledSolution]) -> DescribedPopulation | None:
    """Return the set of solutions that the results of `measure_label_quality` describe.

    The set is the whole `pool` from which `mclabel select` selected if some solutions were drawn at
    random, since the random draw represents all solutions that no rule chose. It is only the
    `selection` if a rule chose all solutions. It is None if the solutions were not selected.
    """
    chosen = [row for row in rows if row.selection_probability is not None]
    if not chosen:
        return None
    some_drawn = any(row.pool_weight > 1 or not row.chosen_by_outcome for row in chosen)
    return "pool" if some_drawn else "selection"


def measure_quality_by_answer_type(rows: Sequence[LabeledSolution]) -> dict[str, LabelQuality]:
    """Compare labels with the exact truth: all of them (`all`), and those of each answer type.

    If there is only one answer type, only `all` is returned. Answer types with fewer than
    `MIN_GROUP_PROBLEMS` problems are left out.
    """
    groups = group_by_meta(rows, "answer_type", get_solution_meta)
    by_type = {name: measure_label_quality(group) for name, group in groups.items()}
    shown = {
        name: quality
        for name, quality in by_type.items()
        if len(groups) > 1 and quality.num_problems >= MIN_GROUP_PROBLEMS
    }
    return {"all": measure_label_quality(rows), **shown}


def measure_label_quality(
    rows: Iterable[LabeledSolution],
    find_first_error: Callable[[LabeledSolution], int | None] = find_exact_first_error,
    *,
    compute_weight: Callable[[LabeledSolution], float] = lambda row: row.pool_weight,
    seed: int = 0,
) -> LabelQuality:
    """Compare labels with the truth.

    Args:
        rows: labelled solutions.
        find_first_error: function that returns the 0-based index of a solution's true first error;
            None means no error.
        compute_weight: function that returns the number of solutions that a solution represents,
            which is 1 / its probability of being drawn. With these weights, every share is Hájek's
            estimate of the share in the whole run, or in the pool from which solutions were
            selected.
        seed: seed of the bootstrap.
    """
    rows = list(rows)
    graded = [r for r in rows if r.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)]
    tallies: dict[str, NDArray[np.float64]] = {}
    for row in graded:
        tally = compute_weight(row) * _count_first_error_hits(row, find_first_error(row))
        earlier = tallies.get(row.problem.id)
        tallies[row.problem.id] = tally if earlier is None else earlier + tally
    table = np.array(list(tallies.values())).reshape(-1, len(_COLUMNS))
    weights = draw_resample_weights(len(table), seed)

    def estimate_column_ratio(numerator_column: str, denominator_column: str) -> Estimate:
        a, b = _COLUMNS.index(numerator_column), _COLUMNS.index(denominator_column)
        return estimate_ratio(table[:, a], table[:, b], weights)

    return LabelQuality(
        num_problems=len(tallies),
        num_solutions=len(graded),
        num_left_out=len(rows) - len(graded),
        pass_at_1=estimate_column_ratio("right", "solutions"),
        wrong_steps=estimate_column_ratio("unsound", "steps"),
        decided=estimate_column_ratio("decided", "solutions"),
        first_error_accuracy=estimate_column_ratio("hit", "solutions"),
        first_error_accuracy_decided=estimate_column_ratio("hit", "decided"),
        first_error_accuracy_wrong=estimate_column_ratio("hit_wrong", "with_error"),
        precision=estimate_column_ratio("true_positive", "flagged"),
        recall=estimate_column_ratio("true_positive", "unsound"),
        f1=estimate_column_ratio("twice_true_positive", "flagged_and_unsound"),
        false_positive_rate=estimate_column_ratio("false_positive", "sound"),
        right_through_wrong=estimate_column_ratio("right_with_error", "right"),
        lucky_found=estimate_column_ratio("right_with_error_found", "right_with_error"),
        agreement=estimate_column_ratio("agreed", "steps"),
        kappa=estimate_from_sums(table, weights, _compute_kappa),
    )


def compute_label_cost(rows: Iterable[LabeledSolution]) -> LabelCost:
    """Return the number of rollout tokens per labelled solution.

    It is given as sampled, and as it would be if solutions with the same prefix shared no rollouts.
    """
    spent = _sum_costs_by_problem(rows).sum(0)
    count = max(1, spent[0])
    return LabelCost(
        tokens_per_solution=float(spent[1] / count),
        tokens_per_solution_unshared=float(spent[2] / count),
    )


def estimate_label_cost(rows: Iterable[LabeledSolution], *, seed: int = 0) -> CostEstimate:
    """Return the numbers of tokens and of rollouts per labelled solution, with intervals.

    Args:
        rows: labelled solutions.
        seed: seed of the bootstrap.
    """
    spent = _sum_costs_by_problem(rows)
    weights = draw_resample_weights(len(spent), seed)
    shared, unshared, rollouts = (
        estimate_ratio(spent[:, i], spent[:, 0], weights) for i in (1, 2, 3)
    )
    return CostEstimate(
        tokens_per_solution=shared,
        tokens_per_solution_unshared=unshared,
        rollouts_per_solution=rollouts,
    )


_COLUMNS = (
    "solutions",
    "right",
    "right_with_error",
    "right_with_error_found",
    "with_error",
    "decided",
    "hit",
    "hit_wrong",
    "steps",
    "sound",
    "unsound",
    "flagged",
    "true_positive",
    "false_positive",
    "twice_true_positive",
    "flagged_and_unsound",
    "agreed",
)


def _compute_kappa(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    both, flagged, unsound, steps = (
        sums[..., _COLUMNS.index(name)] for name in ("true_positive", "flagged", "unsound", "steps")
    )
    cells = [both, flagged - both, unsound - both, steps - flagged - unsound + both]
    return compute_cohen_kappa(np.stack(cells, -1).reshape(*both.shape, 2, 2))


def _sum_costs_by_problem(rows: Iterable[LabeledSolution]) -> NDArray[np.float64]:
    """Return sums by problem, [problems, 4].

    The columns are the numbers of solutions, of sampled rollout tokens, of rollout tokens if
    solutions shared no rollouts, and of sampled rollouts.
    """
    solutions: dict[str, int] = {}
    unshared: dict[str, int] = {}
    by_prefix: dict[str, dict[str, Counts]] = {}
    for row in rows:
        problem = row.problem.id
        counts_by_prefix = {
            problem: row.root,
            **{step.prefix_id: step.counts for step in row.steps},
        }
        by_prefix.setdefault(problem, {}).update(counts_by_prefix)
        tokens = sum(counts.num_tokens for counts in counts_by_prefix.values())
        unshared[problem] = unshared.get(problem, 0) + tokens
        solutions[problem] = solutions.get(problem, 0) + 1
    table = [
        [
            solutions[problem],
            sum(counts.num_tokens for counts in counts_by_prefix.values()),
            unshared[problem],
            sum(counts.num_rollouts for counts in counts_by_prefix.values()),
        ]
        for problem, counts_by_prefix in by_prefix.items()
    ]
    return np.array(table, dtype=np.float64).reshape(-1, 4)


def _count_first_error_hits(row: LabeledSolution, truth: int | None) -> NDArray[np.float64]:
    num_steps = len(row.steps)
    error = num_steps if truth is None else truth
    labelled = num_steps if row.first_error is None else row.first_error
    unsound, flagged = num_steps - error, num_steps - labelled
    both = num_steps - max(error, labelled)
    right = row.solution.outcome is Outcome.RIGHT
    hit = row.is_decided and row.first_error == truth
    return np.array(
        [
            1,
            right,
            right and truth is not None,
            right and truth is not None and row.first_error is not None,
            truth is not None,
            row.is_decided,
            hit,
            truth is not None and hit,
            num_steps,
            error,
            unsound,
            flagged,
            both,
            flagged - both,
            2 * both,
            flagged + unsound,
            num_steps - flagged - unsound + 2 * both,
        ],
        dtype=np.float64,
    )


NUM_POSITIONS = 5
"""Number of parts into which solutions are divided, with about equal numbers of steps."""


@dataclass(frozen=True, kw_only=True)
class PositionMean:
    """Mean value of the steps whose relative position in their solution is in one range.

    The relative position is the step's number, from 1, divided by the number of steps.
    """

    low: float
    """Lower end of the range, exclusive, in [0, 1)."""
    high: float
    """Upper end of the range, inclusive, in (0, 1]."""
    num_steps: int
    value: Estimate
    """Mean value of the steps."""


@dataclass(frozen=True, kw_only=True)
class Monotonicity:
    """Frequency at which hard labels rise from wrong to sound along a solution.

    Labels would never rise if every step after the first error were labelled wrong.
    """

    rising_solutions: Estimate
    """Share of solutions with at least two labelled steps in which a step labelled sound follows a
    step labelled wrong. The label of the last step, the outcome, is included."""
    rising_pairs: Estimate
    """Share of pairs of neighbouring labelled steps that are labelled wrong, then sound."""


def estimate_values_by_position(
    rows: Iterable[LabeledSolution],
    is_step_of_kind: dict[str, Callable[[LabeledSolution, int], bool]],
    *,
    num_positions: int = NUM_POSITIONS,
    seed: int = 0,
) -> dict[str, tuple[PositionMean, ...]]:
    """Return the mean value by relative position, for several kinds of steps.

    Args:
        rows: labelled solutions.
        is_step_of_kind: functions, by name of the kind, that return whether a step is of this kind.
            Their arguments are a solution and the 0-based index of a step.
        num_positions: number of equal ranges into which the relative positions are divided.
        seed: seed of the bootstrap.
    """
    steps = [
        (row, index, value)
        for row in rows
        for index, label in enumerate(row.steps)
        if not label.is_from_outcome and (value := label.estimate) is not None
    ]
    curves = {}
    for name, is_kind in is_step_of_kind.items():
        chosen = [(row, index, value) for row, index, value in steps if is_kind(row, index)]
        if chosen:
            curves[name] = _estimate_position_curve(chosen, num_positions, seed)
    return curves


def measure_monotonicity(rows: Iterable[LabeledSolution], *, seed: int = 0) -> Monotonicity:
    """Return how often hard labels rise along a solution.

    Args:
        rows: labelled solutions; steps without a hard label are skipped.
        seed: seed of the bootstrap.
    """
    problems, columns = [], []
    for row in rows:
        hard = [step.hard for step in row.steps if step.hard is not None]
        rises = sum(b and not a for a, b in pairwise(hard))
        problems.append(row.problem.id)
        columns.append([len(hard) > 1, rises > 0, max(0, len(hard) - 1), rises])
    if not columns:
        return Monotonicity(rising_solutions=NOTHING, rising_pairs=NOTHING)
    table = sum_by_problem(problems, np.array(columns, dtype=np.float64))
    weights = draw_resample_weights(len(table), seed)
    return Monotonicity(
        rising_solutions=estimate_ratio(table[:, 1], table[:, 0], weights),
        rising_pairs=estimate_ratio(table[:, 3], table[:, 2], weights),
    )


def _estimate_position_curve(
    steps: Sequence[tuple[LabeledSolution, int, float]], num_positions: int, seed: int
) -> tuple[PositionMean, ...]:
    at = np.array(
        [-(-(index + 1) * num_positions // len(row.steps)) - 1 for row, index, _ in steps]
    )
    inside = (at[:, None] == np.arange(num_positions)).astype(np.float64)
    values = np.array([value for _, _, value in steps])
    table = sum_by_problem(
        [row.problem.id for row, _, _ in steps],
        np.concatenate([inside, inside * values[:, None]], 1),
    )
    weights = draw_resample_weights(len(table), seed)
    return tuple(
        PositionMean(
            low=i / num_positions,
            high=(i + 1) / num_positions,
            num_steps=int(inside[:, i].sum()),
            value=estimate_ratio(table[:, num_positions + i], table[:, i], weights),
        )
        for i in range(num_positions)
        if inside[:, i].any()
    )
