"""The shape of values and hard labels along a solution: by relative position, and rises."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from mclabel.core.records import LabeledSolution, StepLabel
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    ratio_estimate,
    resample_weights,
    sums_by_problem,
)

NUM_POSITIONS = 5


@dataclass(frozen=True, kw_only=True)
class Position:
    """Values of the steps in one part of their solutions."""

    low: float
    """Exclusive; the last step of a solution lies at 1."""
    high: float
    """Inclusive."""
    num_steps: int
    value: Estimate
    """Mean."""


@dataclass(frozen=True, kw_only=True)
class Monotonicity:
    """Hard labels that rise along a solution, which first errors cannot do."""

    rising_solutions: Estimate
    """Share of solutions, among those with two labelled steps, in which a step labelled sound
    comes after one labelled wrong; the last step's label, the outcome, is one of them."""
    rising_pairs: Estimate
    """Share of neighbouring labelled steps that rise."""


def soft_value(label: StepLabel) -> float | None:
    """The value of a step, or a Bayesian estimator's mean; None for the last step's outcome."""
    if label.is_outcome:
        return None
    return label.value if label.value is not None else label.mean


def values_by_position(
    rows: Iterable[LabeledSolution],
    kinds: dict[str, Callable[[LabeledSolution, int], bool]],
    *,
    num_positions: int = NUM_POSITIONS,
    seed: int = 0,
) -> dict[str, tuple[Position, ...]]:
    """Mean value by relative position, for several kinds of steps.

    Args:
        rows: labelled solutions.
        kinds: name: whether a step (a solution and an index) is of this kind.
        num_positions: parts of equal length that solutions are cut into.
        seed: of the bootstrap.
    """
    steps = [
        (row, index, value)
        for row in rows
        for index, label in enumerate(row.steps)
        if (value := soft_value(label)) is not None
    ]
    curves = {}
    for name, is_kind in kinds.items():
        chosen = [(row, index, value) for row, index, value in steps if is_kind(row, index)]
        if chosen:
            curves[name] = _curve(chosen, num_positions, seed)
    return curves


def monotonicity(rows: Iterable[LabeledSolution], *, seed: int = 0) -> Monotonicity:
    """How often hard labels rise along a solution.

    Args:
        rows: labelled solutions; steps without a verdict are passed over.
        seed: of the bootstrap.
    """
    problems, columns = [], []
    for row in rows:
        hard = [step.hard for step in row.steps if step.hard is not None]
        rises = sum(b and not a for a, b in pairwise(hard))
        problems.append(row.problem.id)
        columns.append([len(hard) > 1, rises > 0, max(0, len(hard) - 1), rises])
    if not columns:
        return Monotonicity(rising_solutions=NOTHING, rising_pairs=NOTHING)
    table = sums_by_problem(problems, np.array(columns, dtype=np.float64))
    weights = resample_weights(len(table), seed)
    return Monotonicity(
        rising_solutions=ratio_estimate(table[:, 1], table[:, 0], weights),
        rising_pairs=ratio_estimate(table[:, 3], table[:, 2], weights),
    )


def _curve(
    steps: Sequence[tuple[LabeledSolution, int, float]], num_positions: int, seed: int
) -> tuple[Position, ...]:
    at = np.array(
        [-(-(index + 1) * num_positions // len(row.steps)) - 1 for row, index, _ in steps]
    )
    inside = (at[:, None] == np.arange(num_positions)).astype(np.float64)
    values = np.array([value for _, _, value in steps])
    table = sums_by_problem(
        [row.problem.id for row, _, _ in steps],
        np.concatenate([inside, inside * values[:, None]], 1),
    )
    weights = resample_weights(len(table), seed)
    return tuple(
        Position(
            low=i / num_positions,
            high=(i + 1) / num_positions,
            num_steps=int(inside[:, i].sum()),
            value=ratio_estimate(table[:, num_positions + i], table[:, i], weights),
        )
        for i in range(num_positions)
        if inside[:, i].any()
    )
