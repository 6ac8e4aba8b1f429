"""Computes ProcessBench's metric: how well the first wrong step of human-judged solutions is found.

The metric is that of arXiv 2412.06559. It has two accuracies: over solutions with an error (the
exact index must be predicted) and over solutions without one (no error must be predicted). Their
harmonic mean is the F1 of a split. The mean F1 of the splits is the score.

A scorer predicts the first step with a score below a threshold, which is chosen as the one with the
highest F1 on GSM8K. Intervals are bootstraps over problems at this fixed threshold. So they do not
include the noise of choosing the threshold, and GSM8K's own F1 is the maximum of many. A judge
predicts the first error of its opinion. Several judges together predict the first error on which
they agree, and only solutions on which they agree are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from mclabel.core.records import Claim
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    compute_bootstrap_interval,
    compute_harmonic_mean,
    divide_or_nan,
    draw_resample_weights,
    estimate_from_sums,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.data.readers.judged import JudgedSolution
from mclabel.evaluate.labels.calibration import Prediction, measure_calibration
from mclabel.evaluate.labels.truth import remove_all_whitespace
from mclabel.show.figures import Grid, format_estimate

THRESHOLD_SPLIT = "gsm8k"
"""Name of the split on which the threshold of a scorer is chosen."""


@dataclass(frozen=True, kw_only=True)
class SplitResult:
    """Result on one split."""

    num_wrong: int
    """Number of solutions with a wrong step, without those in `missing`."""
    num_right: int
    """Number of solutions without a wrong step, without those in `missing`."""
    wrong_accuracy: Estimate
    """Share of the solutions with a wrong step whose first wrong step is predicted exactly."""
    right_accuracy: Estimate
    """Share of the solutions without a wrong step for which no error is predicted."""
    f1: Estimate
    """Harmonic mean of the two accuracies; None if either kind of solutions is missing."""
    missing: tuple[str, ...]
    """Ids of solutions without a prediction, which no other figure but `kept` includes."""
    reasons: Mapping[str, int]
    """Number of missing solutions by reason, the most frequent first."""
    num_unknown: int
    """Number of solutions without a verdict of the scorer, which count as predicted wrongly."""
    kept: Estimate | None
    """Share of all solutions of the split on which several judges agree; None for one judge."""
    ece: Estimate | None = None
    """Expected calibration error of a scorer's scores, read as probabilities that a step is sound.
    It is computed over the steps that people judged, which are those up to the first error."""


@dataclass(frozen=True, kw_only=True)
class LeftOutReason:
    """Reason why a solution has no prediction, as a code and as a text."""

    reason_code: str
    """Short code of the reason; docs/evaluation.md lists all codes."""
    detail: str
    """Explanation for the user."""


LeftOutReasons = Mapping[str, Mapping[str, LeftOutReason]]
"""Reasons why solutions have no prediction, by split and solution id."""


@dataclass(frozen=True, kw_only=True)
class MeasuredJudge:
    """A judge whose opinions are measured."""

    name: str
    """Name of the kind of judge, such as `critic`."""
    claim: Claim


@dataclass(frozen=True)
class JudgePanel:
    """The judges whose opinions are measured."""

    judges: Mapping[str, tuple[MeasuredJudge, ...]]
    """Judges by split. The prediction for a solution is the first error that the first of them
    names, if the others agree."""


@dataclass(frozen=True, kw_only=True)
class ProcessBenchResult:
    """Result on all splits."""

    splits: dict[str, SplitResult]
    mean_f1: Estimate
    """Mean F1 of the splits; None if a split has no F1."""
    threshold: float | None
    """Threshold of a scorer: a step with a lower score is wrong. None without a scorer."""
    panel: JudgePanel | None
    """Judges whose opinions are measured; None for a PRM or a run's labels."""
    num_rejected: Mapping[str, int] = field(default_factory=dict)
    """Number of unusable rows of the files, by split. No other figure includes these rows."""


def measure_processbench(
    splits: Mapping[str, Sequence[JudgedSolution]],
    predictions: Mapping[str, Mapping[str, int | None]],
    *,
    reasons: LeftOutReasons | None = None,
    scores: Mapping[str, Mapping[str, Sequence[float]]] | None = None,
    threshold: float | None = None,
    unknown: Mapping[str, Collection[str]] = MappingProxyType({}),
    panel: JudgePanel | None = None,
    num_rejected: Mapping[str, int] = MappingProxyType({}),
    seed: int = 0,
) -> ProcessBenchResult:
    """Compute ProcessBench's official metric: the F1 of each split, and their mean.

    Args:
        splits: solutions by the name of their split.
        predictions: 0-based index of the predicted first wrong step, or None for no error, by split
            and solution id.
        reasons: reasons why other solutions have no prediction.
        scores: a scorer's scores of the steps, by split and solution id. If given, the calibration
            of the scorer is measured.
        threshold: threshold with which the predictions were made; it is only recorded.
        unknown: ids of solutions without a verdict of the scorer, by split. They have no prediction
            and count as predicted wrongly.
        panel: judges whose opinions are measured. In a split with several judges, only solutions on
            which the judges agree have a prediction.
        num_rejected: number of unusable rows, by split; it is only recorded.
        seed: seed of the bootstrap.
    """
    tables = {
        name: _count_hits_per_problem(rows, predictions[name], unknown.get(name, ()))
        for name, rows in splits.items()
    }
    weights = {
        name: draw_resample_weights(len(table), seed + i)
        for i, (name, table) in enumerate(tables.items())
    }
    several = [] if panel is None else [k for k, judges in panel.judges.items() if len(judges) > 1]
    results = {
        name: _measure_split(
            splits[name],
            predictions[name].keys(),
            set(unknown.get(name, ())),
            (reasons or {}).get(name, {}),
            tables[name],
            weights[name],
            _estimate_predicted_share(splits[name], predictions[name], seed + i)
            if name in several
            else None,
        )
        for i, name in enumerate(splits)
    }
    for i, (name, of_split) in enumerate((scores or {}).items()):
        measured = measure_calibration(
            _list_step_predictions(splits[name], of_split), seed=seed + i
        )
        results[name] = replace(results[name], ece=None if measured is None else measured.ece)
    return ProcessBenchResult(
        splits=results,
        mean_f1=_estimate_mean_f1(tables, weights),
        threshold=threshold,
        panel=panel,
        num_rejected=num_rejected,
    )


def _list_step_predictions(
    rows: Sequence[JudgedSolution], scores: Mapping[str, Sequence[float]]
) -> list[Prediction]:
    """Return a prediction for each step up to the first error.

    The predicted probability is the step's score, and the observation is 1 if the step is sound.
    """
    return [
        Prediction(
            problem_id=remove_all_whitespace(row.problem),
            predicted=min(1.0, max(0.0, score)),
            observed=float(index != row.first_error),
        )
        for row in rows
        if row.id in scores
        for index, score in enumerate(scores[row.id])
        if row.first_error is None or index <= row.first_error
    ]


def _count_hits_per_problem(
    rows: Sequence[JudgedSolution],
    predictions: Mapping[str, int | None],
    unknown: Collection[str],
) -> NDArray[np.float64]:
    """Return counts of solutions per problem, [problems, 4].

    The columns are: solutions with an error; those of them whose first error is predicted exactly;
    solutions without an error; and those of them for which no error is predicted.
    """
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
    return sum_by_problem(
        [remove_all_whitespace(row.problem) for row in rows],
        np.array(columns, dtype=np.float64).reshape(-1, 4),
    )


def _measure_split(
    rows: Sequence[JudgedSolution],
    predicted: Set[str],
    unknown: Set[str],
    reasons: Mapping[str, LeftOutReason],
    table: NDArray[np.float64],
    weights: NDArray[np.float64],
    kept: Estimate | None,
) -> SplitResult:
    missing = tuple(row.id for row in rows if row.id not in predicted and row.id not in unknown)
    counts = Counter(
        reasons[name].reason_code if name in reasons else "unknown" for name in missing
    )
    return SplitResult(
        num_wrong=int(table[:, 0].sum()),
        num_right=int(table[:, 2].sum()),
        wrong_accuracy=estimate_ratio(table[:, 1], table[:, 0], weights),
        right_accuracy=estimate_ratio(table[:, 3], table[:, 2], weights),
        f1=estimate_from_sums(table, weights, compute_split_f1),
        missing=missing,
        reasons=dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        num_unknown=len(unknown),
        kept=kept,
    )


def _estimate_predicted_share(
    rows: Sequence[JudgedSolution], predictions: Mapping[str, int | None], seed: int
) -> Estimate:
    """Return the share of solutions that have a prediction, with a bootstrap interval."""
    columns = np.array([[row.id in predictions, True] for row in rows], dtype=np.float64)
    table = sum_by_problem([remove_all_whitespace(row.problem) for row in rows], columns)
    return estimate_ratio(table[:, 0], table[:, 1], draw_resample_weights(len(table), seed))


def _estimate_mean_f1(
    tables: Mapping[str, NDArray[np.float64]], weights: Mapping[str, NDArray[np.float64]]
) -> Estimate:
    values = [float(compute_split_f1(table.sum(0))) for table in tables.values()]
    if not values or np.isnan(values).any():
        return NOTHING
    drawn = np.mean(
        [compute_split_f1(weights[name] @ table) for name, table in tables.items()], axis=0
    )
    low, high = compute_bootstrap_interval(drawn, sum(map(len, tables.values())))
    return Estimate(value=float(np.mean(values)), low=low, high=high)


def compute_split_f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the F1 of each set of solutions, [...].

    It is NaN if there are no solutions with an error, or none without an error.

    Args:
        sums: counts of solutions in each set, [..., 4]. The columns are: with an error; of these,
            predicted exactly; without an error; of these, predicted to have no error.
    """
    return compute_harmonic_mean(
        divide_or_nan(sums[..., 1], sums[..., 0]), divide_or_nan(sums[..., 3], sums[..., 2])
    )


MAX_NAMED = 5
"""Maximum number of missing solutions that a note names."""
REASON_WORDS = {
    "too_long": "longer than the PRM reads (its max_tokens)",
    "unreadable": "not to be read by the PRM's tokenizer",
    "not_in_run": "not in the run",
    "no_verdict": "cut, or without a verdict on their answer",
    "outcome_only": "labelled at their last step alone",
    "other_steps": "of another number of steps in the run",
    "other_text": "of another text in the run",
    "no_opinion": "without an opinion of the judge",
    "unscored": "without a verdict of the scorer",
    "not_kept": "without agreement of the judges",
    "unknown": "for no known reason",
}
"""Words that describe solutions without a prediction, by `LeftOutReason.reason_code`. In a note,
they follow the number of these solutions."""


def make_processbench_grid(result: ProcessBenchResult) -> Grid:
    """Return a table with a row of measures for each split, and a row for the mean F1."""
    panel = result.panel
    has_kept = any(split.kept is not None for split in result.splits.values())
    has_scores = any(split.ece is not None for split in result.splits.values())
    rows = [
        (
            name,
            f"{split.num_wrong:,}",
            f"{split.num_right:,}",
            f"{len(split.missing):,}",
            *(("" if split.kept is None else format_estimate(split.kept),) if has_kept else ()),
            format_estimate(split.wrong_accuracy),
            format_estimate(split.right_accuracy),
            format_estimate(split.f1),
            *((format_estimate(split.ece),) if has_scores else ()),
        )
        for name, split in result.splits.items()
    ]
    missing = [identity for split in result.splits.values() for identity in split.missing]
    notes = ["F1: harmonic mean of the accuracies on wrong (exact step) and on right solutions."]
    if result.threshold is not None:
        notes.append(f"A step is wrong if its score is below {result.threshold:.6g}.")
    if has_scores:
        notes.append("ECE: calibration error of the steps' scores, up to the first error.")
    if panel is not None:
        notes += _iter_panel_notes(panel)
    if result.num_rejected:
        counts = ", ".join(f"{count:,} of {name}" for name, count in result.num_rejected.items())
        notes.append(
            f"Rows that cannot be used: {counts}. With -o the reasons are in left_out.jsonl."
        )
    if num_unknown := sum(split.num_unknown for split in result.splits.values()):
        num = sum(split.num_wrong + split.num_right for split in result.splits.values())
        notes.append(
            f"Without a verdict of the scorer, and counted as predicted wrongly: {num_unknown:,} "
            f"of {num:,} ({num_unknown / num:.1%})."
        )
    if missing:
        named = ", ".join(missing[:MAX_NAMED]) + (", …" if len(missing) > MAX_NAMED else "")
        notes.append(f"Left out because they have no prediction: {len(missing):,} ({named}).")
        reasons = sum((Counter(split.reasons) for split in result.splits.values()), Counter())
        why = "; ".join(
            f"{n:,} {REASON_WORDS.get(code, code)}" for code, n in reasons.most_common()
        )
        notes.append(f"Reasons: {why}. With -o, left_out.jsonl has the reason of each.")
    counted = ("split", "wrong", "right", "left out", *(("kept",) if has_kept else ()))
    more, blank = (("ECE",), ("",)) if has_scores else ((), ())
    return Grid(
        conclusion="The mean F1 over splits is unknown."
        if result.mean_f1.value is None
        else f"The mean F1 over splits is {format_estimate(result.mean_f1)}.",
        title="ProcessBench [95% interval]",
        header=(*counted, "on wrong", "on right", "F1", *more),
        rows=(*rows, ("mean", *[""] * (len(counted) + 1), format_estimate(result.mean_f1), *blank)),
        note=" ".join(notes),
    )


def _iter_panel_notes(panel: JudgePanel) -> Iterator[str]:
    """Yield sentences that name the judges and explain the measures."""
    named = (
        f"{name} by {', '.join(judge.name for judge in judges)}"
        for name, judges in panel.judges.items()
    )
    yield f"Judged: {'; '.join(named)}."
    if any(len(judges) > 1 for judges in panel.judges.values()):
        yield (
            "Kept: share of the split's solutions on which all judges agree. The accuracies are "
            "over these solutions."
        )
    alone = [judges[0] for judges in panel.judges.values() if len(judges) == 1]
    claims = {judge.name: judge.claim for judge in alone}
    if flagging := sorted(name for name, claim in claims.items() if claim == "at_or_before"):
        yield (
            f"{', '.join(flagging)} claims only that an error is at a step or before it. This "
            "step is the prediction. Without such a claim, the prediction is no error."
        )
