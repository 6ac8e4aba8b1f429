"""What each completer's rollouts are worth: alone, and what they cost.

A completer misleads in two ways: it fails where the step is sound (blindness), and succeeds where
an error was made before (luck). The posterior learns both rates without truth; here they are
measured against it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mclabel.core.records import AUTHOR, CompleterCounts, Counts, LabeledSolution, total_counts
from mclabel.core.stats.bootstrap import Estimate, ratio_estimate, resample_weights
from mclabel.core.stats.values import estimate_fixed, first_error, hard_label, num_trials
from mclabel.evaluate.labels.quality import LabelQuality, label_quality
from mclabel.labeling.estimators import outcome_label

LABELS = "the labels"
"""Name of the row of the labels as they are."""


@dataclass(frozen=True, kw_only=True)
class CompleterReport:
    """One completer's rollouts in a run; all figures are per labelled solution, or shares."""

    cost_per_token: float
    """Relative to the cheapest completer's."""
    rollouts: float
    tokens: float
    cost: float
    """Tokens at their cost."""
    blindness: Estimate | None
    """Mean share of its rollouts from a sound prefix that end wrong; None without truth."""
    luck: Estimate | None
    """Mean share of its rollouts from an unsound prefix that end right."""
    learned_blindness: float | None
    """Blindness that the posterior assumed last; None where the estimator learns none."""
    learned_luck: float | None
    """Luck that the posterior assumed last; None likewise."""


@dataclass(frozen=True, kw_only=True)
class CompletersReport:
    """Completers of a run."""

    completers: dict[str, CompleterReport]
    labels: dict[str, LabelQuality]
    """Labels as they are, and by each completer alone where every step has rollouts by every
    completer; empty without truth."""


def completers_report(
    rows: Sequence[LabeledSolution],
    truth: Callable[[LabeledSolution], int | None] | None,
    learned: Mapping[str, Mapping[str, float]],
    *,
    seed: int = 0,
) -> CompletersReport | None:
    """Measure a run's completers; None where the author alone rolled out.

    Args:
        rows: labelled solutions of one run, with known truth if there is any.
        truth: a solution's true first error.
        learned: `blindness` and `luck` by completer, as the run has learned them.
        seed: of the bootstrap.
    """
    names = [one.name for one in rows[0].completers] if rows else []
    if names in ([], [AUTHOR]):
        return None
    completers = {
        name: _completer(number, rows, truth, learned.get(name, {}), seed)
        for number, name in enumerate(names)
    }
    labels = {}
    if truth is not None:
        labels[LABELS] = label_quality(rows, truth, seed=seed)
        if all(_is_whole(row) for row in rows):
            for number, name in enumerate(names):
                alone = [_relabelled(row, number) for row in rows]
                labels[name] = label_quality(alone, truth, seed=seed)
    return CompletersReport(completers=completers, labels=labels)


def _completer(
    number: int,
    rows: Sequence[LabeledSolution],
    truth: Callable[[LabeledSolution], int | None] | None,
    learned: Mapping[str, float],
    seed: int,
) -> CompleterReport:
    spent = _spent(number, rows)
    cost = rows[0].completers[number].cost
    blindness = luck = None
    if truth is not None:
        rates = _rates(number, rows, truth)
        weights = resample_weights(len(rates), seed)
        blindness = ratio_estimate(rates[:, 0], rates[:, 1], weights)
        luck = ratio_estimate(rates[:, 2], rates[:, 3], weights)
    return CompleterReport(
        cost_per_token=cost,
        rollouts=spent.num_rollouts / len(rows),
        tokens=spent.num_tokens / len(rows),
        cost=spent.num_tokens * cost / len(rows),
        blindness=blindness,
        luck=luck,
        learned_blindness=learned.get("blindness"),
        learned_luck=learned.get("luck"),
    )


def _spent(number: int, rows: Sequence[LabeledSolution]) -> Counts:
    """All of a completer's rollouts; prefixes that solutions share are counted once."""
    by_prefix: dict[str, Counts] = {}
    for row in rows:
        one = row.completers[number]
        by_prefix[row.problem.id] = one.root
        by_prefix |= dict(zip([step.prefix_id for step in row.steps], one.steps, strict=True))
    return total_counts(by_prefix.values())


def _rates(
    number: int, rows: Sequence[LabeledSolution], truth: Callable[[LabeledSolution], int | None]
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Sums of each problem [problems, 4]: shares failed and number of sound prefixes, shares
    succeeded and number of unsound ones.
    """
    sums: dict[str, list[float]] = {}
    for row in rows:
        error = truth(row)
        mine = sums.setdefault(row.problem.id, [0.0] * 4)
        for step, counts in enumerate(row.completers[number].steps):
            if (trials := num_trials(counts)) == 0:
                continue
            share = counts.num_right / trials
            is_sound = error is None or step < error
            mine[0 if is_sound else 2] += 1 - share if is_sound else share
            mine[1 if is_sound else 3] += 1
    return np.array(list(sums.values()), dtype=np.float64).reshape(-1, 4)


def _is_whole(row: LabeledSolution) -> bool:
    """Whether each completer rolled out after every step but the last."""
    return all(_has_all(one) for one in row.completers)


def _has_all(one: CompleterCounts) -> bool:
    return all(counts.num_rollouts for counts in one.steps[:-1])


def _relabelled(row: LabeledSolution, number: int) -> LabeledSolution:
    """Return the row with the first error by one completer's shares of right rollouts."""
    counts = row.completers[number].steps[:-1]
    hard = [hard_label(estimate_fixed(one).value) for one in counts]
    if row.steps:
        hard.append(outcome_label(row.solution.outcome))
    steps = [replace(step, hard=label) for step, label in zip(row.steps, hard, strict=True)]
    return replace(row, first_error=first_error(hard), steps=tuple(steps))
