"""Quality of the sources of a combined run: each alone, where all agree, the run's own labels.

A combined run stores what every source, rollouts or a judge, said of each solution, so that the
labels of any source alone, and of those on which all agree (`same_location`), can be measured
against the truth. Agreement is on easy solutions. Where the run has a posterior, as many solutions
of which it is surest are therefore measured beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mclabel.core.records import Claim, LabeledSolution, Outcome, SourceOpinion
from mclabel.core.stats.bootstrap import (
    NOTHING,
    Estimate,
    ratio_estimate,
    resample_weights,
    sums_by_problem,
)
from mclabel.evaluate.labels.quality import LabelQuality, label_quality
from mclabel.judge.consensus.rules import SAME_LOCATION, same_location

SUREST = 0.6
"""Share of solutions, surest first, that is measured of every posterior."""


TrueError = Callable[[LabeledSolution], int | None]
"""A solution's true first error."""


@dataclass(frozen=True, kw_only=True)
class KeptQuality:
    """Labels of the solutions that are kept."""

    kept: Estimate
    """Share of solutions with a right or a wrong outcome that are kept."""
    quality: LabelQuality | None
    """Over what is kept; None without truth."""


@dataclass(frozen=True, kw_only=True)
class FlagQuality:
    """Flags of a judge that claims an error at a step or before it."""

    flagged: Estimate
    """Share of solutions that it flags."""
    holding: Estimate
    """Share of flagged solutions whose true first error is at the flag or before it."""
    flagged_sound: Estimate
    """Share of solutions without an error that it flags."""


@dataclass(frozen=True, kw_only=True)
class JudgeRates:
    """Rates at which a judge names a step, of those that it reads up to the step it names."""

    false_alarm: Estimate
    """Share of the sound steps that it reads."""
    detection: Estimate
    """Share of the first wrong steps that it reaches."""
    later: Estimate
    """Share of the steps after a first wrong one that it reads."""


@dataclass(frozen=True, kw_only=True)
class SourceReport:
    """One source alone, over the solutions on which it says something."""

    claim: Claim
    labels: KeptQuality
    """Quality of labels that are the first errors it names; they are not compared if it does not
    claim to name them."""
    flags: FlagQuality | None
    """Place where it claims an error at a step or before it, and the truth is known."""
    rates: JudgeRates | None
    """None for rollouts, and without truth."""
    learned_rates: Mapping[str, float]
    """Rates that the run assumed last, named as in `JudgeRates`; empty where it learned none."""


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """The solutions on which all sources agree (`same_location`)."""

    labels: KeptQuality
    surest: KeptQuality | None
    """The run's own labels of as many solutions, those of which its posterior is surest; None where
    it has none."""


@dataclass(frozen=True, kw_only=True)
class ConsensusReport:
    """Sources of a combined run, and what they make together."""

    rule: str
    """The run's own."""
    sources: dict[str, SourceReport]
    same_location: AgreementReport
    """Made again of the opinions."""
    labels: KeptQuality
    """Labels as they are."""
    surest: KeptQuality | None
    """Quality of the share `SUREST` of labels with the surest posterior; None without
    posteriors."""


def consensus_report(
    rows: Sequence[LabeledSolution],
    truth: TrueError | None,
    learned: Mapping[str, Mapping[str, float]],
    *,
    seed: int = 0,
) -> ConsensusReport | None:
    """Measure the sources of a combined run; None where labels are of rollouts alone.

    Args:
        rows: labelled solutions of one run, those with a known truth if there is any.
        truth: a solution's true first error.
        learned: error rates by judge, as the run has learned them.
        seed: seed of the bootstrap.
    """
    first = rows[0].consensus if rows else None
    if first is None or any(row.consensus is None for row in rows):
        return None
    graded = [row for row in rows if row.solution.outcome in (Outcome.RIGHT, Outcome.WRONG)]
    compare = _Comparison(graded, truth, seed)
    ranked = [] if first.rule == SAME_LOCATION else _surest_first(graded)

    def surest(count: int) -> KeptQuality | None:
        return compare.kept(ranked[:count]) if ranked else None

    agreed = _agreed_solutions(graded)
    return ConsensusReport(
        rule=first.rule,
        sources={
            opinion.source: _source(number, rows, compare, learned.get(opinion.source, {}))
            for number, opinion in enumerate(first.opinions)
        },
        same_location=AgreementReport(labels=compare.kept(agreed), surest=surest(len(agreed))),
        labels=compare.kept([row for row in graded if row.is_kept]),
        surest=surest(round(SUREST * len(graded))),
    )


@dataclass(frozen=True)
class _Comparison:
    """Truth with which labels are compared."""

    graded: Sequence[LabeledSolution]
    """All solutions of the run that count, of which a part may be kept."""
    truth: TrueError | None
    seed: int

    def kept(self, labelled: Sequence[LabeledSolution]) -> KeptQuality:
        """Return the share and quality of labels of a part of the solutions."""
        ids = {row.solution.id for row in labelled}
        there = [[row.solution.id in ids, True] for row in self.graded]
        quality = None
        if self.truth is not None:
            quality = label_quality(labelled, self.truth, seed=self.seed)
        return KeptQuality(
            kept=_estimate_shares(self.graded, there, 1, self.seed)[0], quality=quality
        )


def _estimate_shares(
    rows: Sequence[LabeledSolution], counts: Sequence[Sequence[float]], num: int, seed: int
) -> list[Estimate]:
    """Return several shares with intervals over problems.

    Args:
        rows: labelled solutions.
        counts: hits and cases of each share in turn, for each solution.
        num: number of shares.
        seed: seed of the bootstrap.
    """
    table = np.array(counts, dtype=np.float64).reshape(-1, 2 * num)
    sums = sums_by_problem([row.problem.id for row in rows], table)
    weights = resample_weights(len(sums), seed)
    return [ratio_estimate(sums[:, 2 * i], sums[:, 2 * i + 1], weights) for i in range(num)]


def _surest_first(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """Return the solutions with a posterior, the surest first error first; ids break ties."""
    ranked = [(-max(row.posterior), row.solution.id, row) for row in rows if row.posterior]
    return [row for *_, row in sorted(ranked, key=lambda entry: entry[:2])]


def _agreed_solutions(rows: Sequence[LabeledSolution]) -> list[LabeledSolution]:
    """Return the solutions on which all sources agree, with their label."""
    agreed = []
    for row in rows:
        assert row.consensus is not None
        opinions = row.consensus.opinions
        if row.steps and same_location(opinions):
            agreed.append(row.with_first_error(opinions[0].first_error))
    return agreed


def _source(
    number: int,
    rows: Sequence[LabeledSolution],
    compare: _Comparison,
    learned: Mapping[str, float],
) -> SourceReport:
    opinions = {row.solution.id: _opinion(row, number) for row in rows}
    claim = _opinion(rows[0], number).claim
    labels = compare.kept(_as_labels(compare.graded, opinions))
    flags = None
    if claim == "at_or_before":
        if labels.quality is not None:
            # Its flags bound the first error, and its silence says nothing.
            quality = replace(
                labels.quality, first_error_accuracy=NOTHING, first_error_accuracy_wrong=NOTHING
            )
            labels = replace(labels, quality=quality)
        flags = _flags(_as_labels(compare.graded, opinions), compare)
    return SourceReport(
        claim=claim,
        labels=labels,
        flags=flags,
        rates=_rates(_as_labels(rows, opinions), compare) if number else None,
        learned_rates=dict(learned),
    )


def _opinion(row: LabeledSolution, number: int) -> SourceOpinion:
    assert row.consensus is not None
    return row.consensus.opinions[number]


def _as_labels(
    rows: Sequence[LabeledSolution], opinions: Mapping[str, SourceOpinion]
) -> list[LabeledSolution]:
    """Return the solutions on which a source says something, with what it names as the first
    error.
    """
    return [
        row.with_first_error(opinions[row.solution.id].first_error)
        for row in rows
        if row.steps and opinions[row.solution.id].is_known
    ]


def _flags(labelled: Sequence[LabeledSolution], compare: _Comparison) -> FlagQuality | None:
    if compare.truth is None:
        return None
    counts = []
    for row in labelled:
        flag, error = row.first_error, compare.truth(row)
        is_flagged, is_sound = flag is not None, error is None
        holds = flag is not None and error is not None and flag >= error
        counts.append([is_flagged, True, holds, is_flagged, is_flagged and is_sound, is_sound])
    flagged, holding, sound = _estimate_shares(labelled, counts, 3, compare.seed)
    return FlagQuality(flagged=flagged, holding=holding, flagged_sound=sound)


def _rates(labelled: Sequence[LabeledSolution], compare: _Comparison) -> JudgeRates | None:
    if compare.truth is None:
        return None
    counts = []
    for row in labelled:
        steps, error = len(row.steps), compare.truth(row)
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
    alarms, detection, later = _estimate_shares(labelled, counts, 3, compare.seed)
    return JudgeRates(false_alarm=alarms, detection=detection, later=later)
