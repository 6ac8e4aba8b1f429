"""Measures the sources of a combined run: each source alone, their agreement, and the final labels.

A combined run stores the opinion of every source (rollouts or a judge) on each solution: its first
wrong step, if any. So the labels of each source alone, and the labels on which all sources agree
(the rule `same_location`), can be compared with the truth. Sources agree mostly on easy solutions.
If the run has posteriors, the same number of solutions with the surest posterior (the highest
probability of a first error, or of none) is therefore measured for comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mclabel.core.records import Claim, LabeledSolution, Outcome, SourceOpinion
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    draw_resample_weights,
    estimate_ratio,
    sum_by_problem,
)
from mclabel.evaluate.labels.quality import LabelQuality, measure_label_quality
from mclabel.judge.consensus.rules import SAME_LOCATION, same_location

SUREST_SHARE = 0.6
"""Share of all solutions that are measured separately: those with the surest posterior."""


TrueError = Callable[[LabeledSolution], int | None]
"""Function that returns the 0-based index of a solution's true first error; None means no error."""


@dataclass(frozen=True, kw_only=True)
class KeptQuality:
    """Quality of the labels of the solutions that a rule keeps.

    A rule, such as the agreement of all sources, keeps a solution if it gives it a label.
    """

    kept: Estimate
    """Share of solutions with a right or a wrong outcome that are kept."""
    quality: LabelQuality | None
    """Quality of the labels of kept solutions; None if the truth is not known."""


@dataclass(frozen=True, kw_only=True)
class FlagQuality:
    """Quality of the flags of a judge: a flag claims that an error is at a step or before it."""

    flagged: Estimate
    """Share of solutions that the judge flags."""
    holding: Estimate
    """Share of flagged solutions whose true first error is at the flag or before it."""
    flagged_sound: Estimate
    """Share of solutions without an error that the judge flags."""


@dataclass(frozen=True, kw_only=True)
class JudgeRates:
    """Rates at which a judge finds a fault, over the steps that it reads.

    A judge is assumed to read the steps in order, up to the step that it names as the first error.
    """

    false_alarm: Estimate
    """Share at which the judge finds a fault, among the sound steps that it reads."""
    detection: Estimate
    """Share at which the judge finds a fault, among the first wrong steps that it reads."""
    later: Estimate
    """Share at which the judge finds a fault, among the steps after a first wrong step that it
    reads."""


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """Quality of one source of opinions (the rollouts or a judge), measured without the others.

    It is measured on the solutions on which the source has an opinion. `claim` is the kind of
    statement that its opinions make about the first error.
    """

    claim: Claim
    """Kind of statement that the source's opinions make about the first error, such as its exact
    step."""
    labels: KeptQuality
    """Quality of the labels that the source's first errors give. The accuracy of first errors is
    missing if the source does not claim to name them exactly."""
    flags: FlagQuality | None
    """Quality of the flags. None unless the source claims an error at a step or before it, and the
    truth is known."""
    rates: JudgeRates | None
    """Measured rates at which a judge finds a fault; None for rollouts, or if the truth is not
    known."""
    learned_rates: Mapping[str, float]
    """The same rates, as `mclabel combine` estimated them without truth. Keys are the names of the
    fields of `JudgeRates`. Empty if no rates were estimated."""


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """Quality of the labels of the solutions on which all sources agree."""

    labels: KeptQuality
    surest: KeptQuality | None
    """Quality of the run's labels of as many solutions as there is agreement on, namely those with
    the surest posterior. None if the run has no posteriors."""


@dataclass(frozen=True, kw_only=True)
class ConsensusReport:
    """Quality of the sources of a combined run, and of the combined labels."""

    rule: str
    """Rule by which the run was combined."""
    sources: dict[str, SourceReport]
    """Quality of each source, by name."""
    same_location: AgreementReport
    """Quality of the rule `same_location`, which is applied to the stored opinions."""
    labels: KeptQuality
    """Quality of the run's combined labels."""
    surest: KeptQuality | None
    """Quality of the run's labels of the share `SUREST_SHARE` of solutions, those with the surest
    posterior. None if the run has no posteriors."""


def measure_consensus(
    rows: Sequence[LabeledSolution],
    truth: TrueError | None,
    learned_rates: Mapping[str, Mapping[str, float]],
    *,
    seed: int = 0,
) -> ConsensusReport | None:
    """Measure the sources of a combined run; None if the run is not combined.

    Args:
        rows: labelled solutions of one run. If `truth` is given, it must know all of them.
        truth: function that returns a solution's true first error; None if it is not known.
        learned_rates: error rates that `mclabel combine` estimated, by judge and name of the rate.
        seed: seed of the bootstrap.
    """
    first = rows[0].consensus if rows else None
    if first is None or any(row.consensus is None for row in rows):
        return None
    graded = [row for row in rows if row.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)]
    comparison = _Comparison(graded, truth, seed)
    ranked = [] if first.rule == SAME_LOCATION else _sort_surest_first(graded)

    def measure_surest(count: int) -> KeptQuality | None:
        return comparison.measure_kept(ranked[:count]) if ranked else None

    agreed = _relabel_where_sources_agree(graded)
    return ConsensusReport(
        rule=first.rule,
        sources={
            opinion.source: _measure_source(
                number, rows, comparison, learned_rates.get(opinion.source, {})
            )
            for number, opinion in enumerate(first.opinions)
        },
        same_location=AgreementReport(
            labels=comparison.measure_kept(agreed), surest=measure_surest(len(agreed))
        ),
        labels=comparison.measure_kept([row for row in graded if row.is_kept]),
        surest=measure_surest(round(SUREST_SHARE * len(graded))),
    )


@dataclass(frozen=True)
class _Comparison:
    """Compares the labels of subsets of a run's solutions with the truth."""

    graded: Sequence[LabeledSolution]
    """All solutions of the run with a right or a wrong outcome."""
    truth: TrueError | None
    seed: int

    def measure_kept(self, labelled: Sequence[LabeledSolution]) -> KeptQuality:
        """Return the share of the given solutions among `graded`, and the quality of their
        labels.
        """
        ids = {row.solution.id for row in labelled}
        there = [[row.solution.id in ids, True] for row in self.graded]
        quality = None
        if self.truth is not None:
            quality = measure_label_quality(labelled, self.truth, seed=self.seed)
        return KeptQuality(
            kept=_estimate_shares(self.graded, there, 1, self.seed)[0], quality=quality
        )


def _estimate_shares(
    rows: Sequence[LabeledSolution], counts: Sequence[Sequence[float]], num_shares: int, seed: int
) -> list[Estimate]:
    """Return several shares, each with a bootstrap interval over problems.

    Args:
        rows: labelled solutions.
        counts: for each solution, the number of hits and the number of cases of each share: [hits
            of the first share, cases of the first share, hits of the second share, ...].
        num_shares: number of shares.
        seed: seed of the bootstrap.
    """
    table = np.array(counts, dtype=np.float64).reshape(-1, 2 * num_shares)
    sums = sum_by_problem([row.problem.id for row in rows], table)
    weights = draw_resample_weights(len(sums), seed)
    return [estimate_ratio(sums[:, 2 * i], sums[:, 2 * i + 1], weights) for i in range(num_shares)]


def _sort_surest_first(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """Return the solutions that have a posterior, the surest posterior first.

    The surest posterior has the highest probability of a single first error, or of no error. Ties
    are sorted by id.
    """
    ranked = [(-max(row.posterior), row.solution.id, row) for row in rows if row.posterior]
    return [row for *_, row in sorted(ranked, key=lambda entry: entry[:2])]


def _relabel_where_sources_agree(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """Return the solutions on which all sources agree, labelled with the agreed first error."""
    agreed = []
    for row in rows:
        assert row.consensus is not None
        opinions = row.consensus.opinions
        if row.steps and same_location(opinions):
            agreed.append(row.with_first_error(opinions[0].first_error))
    return agreed


def _measure_source(
    source_index: int,
    rows: Sequence[LabeledSolution],
    comparison: _Comparison,
    learned_rates: Mapping[str, float],
) -> SourceReport:
    opinions = {row.solution.id: _get_opinion(row, source_index) for row in rows}
    claim = _get_opinion(rows[0], source_index).claim
    labels = comparison.measure_kept(_label_by_opinions(comparison.graded, opinions))
    flags = None
    if claim == "at_or_before":
        if labels.quality is not None:
            # A flag only bounds the first error, and no flag does not mean no error.
            quality = replace(
                labels.quality, first_error_accuracy=NOTHING, first_error_accuracy_wrong=NOTHING
            )
            labels = replace(labels, quality=quality)
        flags = _measure_flag_quality(_label_by_opinions(comparison.graded, opinions), comparison)
    return SourceReport(
        claim=claim,
        labels=labels,
        flags=flags,
        rates=_measure_judge_error_rates(_label_by_opinions(rows, opinions), comparison)
        if source_index
        else None,
        learned_rates=dict(learned_rates),
    )


def _get_opinion(row: LabeledSolution, source_index: int) -> SourceOpinion:
    assert row.consensus is not None
    return row.consensus.opinions[source_index]


def _label_by_opinions(
    rows: Sequence[LabeledSolution], opinions: Mapping[str, SourceOpinion]
) -> list[LabeledSolution]:
    """Return the solutions on which a source has an opinion, with its first error as the label."""
    return [
        row.with_first_error(opinions[row.solution.id].first_error)
        for row in rows
        if row.steps and opinions[row.solution.id].is_known
    ]


def _measure_flag_quality(
    labelled: Sequence[LabeledSolution], comparison: _Comparison
) -> FlagQuality | None:
    if comparison.truth is None:
        return None
    counts = []
    for row in labelled:
        flag, error = row.first_error, comparison.truth(row)
        is_flagged, is_sound = flag is not None, error is None
        holds = flag is not None and error is not None and flag >= error
        counts.append([is_flagged, True, holds, is_flagged, is_flagged and is_sound, is_sound])
    flagged, holding, sound = _estimate_shares(labelled, counts, 3, comparison.seed)
    return FlagQuality(flagged=flagged, holding=holding, flagged_sound=sound)


def _measure_judge_error_rates(
    labelled: Sequence[LabeledSolution], comparison: _Comparison
) -> JudgeRates | None:
    if comparison.truth is None:
        return None
    counts = []
    for row in labelled:
        steps, error = len(row.steps), comparison.truth(row)
        first = steps if error is None else error
        named = steps if row.first_error is None else row.first_error
        read = min(named + 1, steps)
        counts.append(
            [
                *(named < first, min(read, first)),
                *(named == first < steps, first < read),
                *(first < named < steps, max(read - first - 1, 0)),
            ]
        )
    alarms, detection, later = _estimate_shares(labelled, counts, 3, comparison.seed)
    return JudgeRates(false_alarm=alarms, detection=detection, later=later)
