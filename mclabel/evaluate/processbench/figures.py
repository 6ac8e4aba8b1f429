"""ProcessBench: who finds the first wrong step of solutions that people have judged.

The metric of arXiv 2412.06559: accuracy over solutions with an error (the exact index) and over
those without one (none predicted); their harmonic mean is a split's F1; the mean of the splits
is the score. A scorer's prediction is its first step under a threshold, which is the one with the
highest F1 on GSM8K. Intervals are by bootstrap over problems at that threshold, so they leave out
the noise of choosing it, and GSM8K's own F1 is the highest of many. A judge's prediction is the
first error of its opinion; that of several judges is what a rule makes of their opinions, on the
solutions that the rule keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Claim
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    harmonic_mean,
    interval,
    ratio_estimate,
    resample_weights,
    shares,
    sums_by_problem,
    sums_estimate,
)
from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.labels.calibration import Prediction, calibration
from mclabel.evaluate.matching import compact

THRESHOLD_SPLIT = "gsm8k"


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """One split."""

    num_wrong: int
    """Solutions with a wrong step, among those that were predicted."""
    num_right: int
    wrong_accuracy: Estimate
    """Of solutions with a wrong step: its index predicted."""
    right_accuracy: Estimate
    """Of solutions without: none predicted."""
    f1: Estimate
    """Harmonic mean of the two; None where either kind is missing."""
    missing: tuple[str, ...]
    """Ids of solutions without a prediction, which are left out."""
    reasons: Mapping[str, int]
    """How many of them for which reason, the most frequent first."""
    num_unknown: int
    """Solutions on which a scorer gives no verdict: they count as predicted wrongly."""
    kept: Estimate | None
    """Share of all solutions of the split that a rule over several judges keeps; None without
    one."""
    ece: Estimate | None = None
    """Of a scorer: expected calibration error of its scores, as chances that a step is sound, over
    the steps that people judged: up to the first error."""


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """Why a solution has no prediction."""

    reason: str
    """A short code; docs/evaluation.md has all."""
    detail: str


Reasons = Mapping[str, Mapping[str, LeftOut]]
"""By split and id, of solutions without a prediction."""


@dataclass(frozen=True, kw_only=True)
class MeasuredJudge:
    """A judge whose opinions are measured."""

    name: str
    """Of its component."""
    claim: Claim


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The judges whose opinions are measured, and how they come to one prediction."""

    judges: Mapping[str, tuple[MeasuredJudge, ...]]
    """By split, in the order in which a rule takes them."""
    rule: str | None
    """Makes one prediction of the opinions of several judges; None where each split has one."""


@dataclass(frozen=True, kw_only=True)
class ProcessBenchResult:
    """All splits."""

    splits: dict[str, SplitResult]
    mean_f1: Estimate
    """Mean of the splits' F1; None if one has none."""
    threshold: float | None
    """Of a scorer: a step under it is wrong."""
    panel: Panel | None
    """Of opinions; None of anything else."""
    num_rejected: Mapping[str, int] = field(default_factory=dict)
    """Rows of the files that cannot be used, by split; they are in no other figure."""


def processbench(
    splits: Mapping[str, Sequence[JudgedSolution]],
    predictions: Mapping[str, Mapping[str, int | None]],
    *,
    reasons: Reasons | None = None,
    scores: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    threshold: float | None = None,
    unknown: Mapping[str, Collection[str]] = MappingProxyType({}),
    panel: Panel | None = None,
    seed: int = 0,
) -> ProcessBenchResult:
    """The official metric.

    Args:
        splits: solutions by the name of their split.
        predictions: by split and id, the first wrong step or None for none.
        reasons: why others have none.
        scores: by split and id, one a step, of a scorer; its calibration is measured.
        threshold: that made them, for the record.
        unknown: by split, ids of solutions on which a scorer gives no verdict, and which count as
            predicted wrongly. They have no prediction.
        panel: whose opinions they are, for the record. If it has a rule, the solutions with a
            prediction are those that the rule keeps.
        seed: of the bootstrap.
    """
    tables = {
        name: _table(rows, predictions[name], unknown.get(name, ()))
        for name, rows in splits.items()
    }
    weights = {
        name: resample_weights(len(table), seed + i)
        for i, (name, table) in enumerate(tables.items())
    }
    has_rule = panel is not None and panel.rule is not None
    results = {
        name: _split(
            splits[name],
            predictions[name].keys() | set(unknown.get(name, ())),
            (reasons or {}).get(name, {}),
            tables[name],
            weights[name],
            _kept(splits[name], predictions[name], seed + i) if has_rule else None,
        )
        for i, name in enumerate(splits)
    }
    for name, ids in unknown.items():
        results[name] = replace(results[name], num_unknown=len(ids))
    for i, (name, of_split) in enumerate((scores or {}).items()):
        measured = calibration(_step_predictions(splits[name], of_split), seed=seed + i)
        results[name] = replace(results[name], ece=None if measured is None else measured.ece)
    return ProcessBenchResult(
        splits=results, mean_f1=_mean_f1(tables, weights), threshold=threshold, panel=panel
    )


def _step_predictions(
    rows: Sequence[JudgedSolution], scores: Mapping[str, Sequence[float]]
) -> list[Prediction]:
    """Scores of the steps up to the first error, against whether the step is sound."""
    return [
        Prediction(
            problem_id=compact(row.problem),
            predicted=min(1.0, max(0.0, score)),
            observed=float(index != row.first_error),
        )
        for row in rows
        if row.id in scores
        for index, score in enumerate(scores[row.id])
        if row.first_error is None or index <= row.first_error
    ]


def _table(
    rows: Sequence[JudgedSolution],
    predictions: Mapping[str, int | None],
    unknown: Collection[str],
) -> NDArray[np.float64]:
    """Wrong solutions, those found, right ones, those found, of each problem [problems, 4]."""
    rows = [row for row in rows if row.id in predictions or row.id in unknown]
    is_hit = {row.id: predictions.get(row.id, -1) == row.first_error for row in rows}
    columns = [
        [
            row.first_error is not None,
            row.first_error is not None and is_hit[row.id],
            row.first_error is None,
            row.first_error is None and is_hit[row.id],
        ]
        for row in rows
    ]
    return sums_by_problem(
        [compact(row.problem) for row in rows],
        np.array(columns, dtype=np.float64).reshape(-1, 4),
    )


def _split(
    rows: Sequence[JudgedSolution],
    counted: Collection[str],
    reasons: Mapping[str, LeftOut],
    table: NDArray[np.float64],
    weights: NDArray[np.float64],
    kept: Estimate | None,
) -> SplitResult:
    missing = tuple(row.id for row in rows if row.id not in counted)
    counts = Counter(reasons[name].reason if name in reasons else "unknown" for name in missing)
    return SplitResult(
        num_wrong=int(table[:, 0].sum()),
        num_right=int(table[:, 2].sum()),
        wrong_accuracy=ratio_estimate(table[:, 1], table[:, 0], weights),
        right_accuracy=ratio_estimate(table[:, 3], table[:, 2], weights),
        f1=sums_estimate(table, weights, split_f1),
        missing=missing,
        reasons=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        num_unknown=0,
        kept=kept,
    )


def _kept(
    rows: Sequence[JudgedSolution], predictions: Mapping[str, int | None], seed: int
) -> Estimate:
    """Share of the solutions that have a prediction."""
    columns = np.array([[row.id in predictions, True] for row in rows], dtype=np.float64)
    table = sums_by_problem([compact(row.problem) for row in rows], columns)
    return ratio_estimate(table[:, 0], table[:, 1], resample_weights(len(table), seed))


def _mean_f1(
    tables: Mapping[str, NDArray[np.float64]], weights: Mapping[str, NDArray[np.float64]]
) -> Estimate:
    values = [float(split_f1(table.sum(0))) for table in tables.values()]
    if not values or np.isnan(values).any():
        return NOTHING
    drawn = np.mean([split_f1(weights[name] @ table) for name, table in tables.items()], axis=0)
    low, high = interval(drawn, sum(map(len, tables.values())))
    return Estimate(value=float(np.mean(values)), low=low, high=high)


def split_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 of first errors [...]; NaN where solutions with, or without, an error are missing.

    Args:
        sums: [..., 4]: solutions with an error, those found, solutions without one, those passed.
    """
    return harmonic_mean(shares(sums[..., 1], sums[..., 0]), shares(sums[..., 3], sums[..., 2]))
