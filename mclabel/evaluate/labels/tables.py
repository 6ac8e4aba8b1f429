"""The tables of `mclabel eval labels`: a row a group of problems."""

from __future__ import annotations

from dataclasses import replace

from mclabel.core.stats.bootstrap import FEW_PROBLEMS
from mclabel.evaluate.grouping import FEW as FEW_IN_GROUP
from mclabel.evaluate.labels.consensus import SUREST, ConsensusReport, KeptQuality
from mclabel.evaluate.labels.report import ALL, GroupReport, LabelReport
from mclabel.evaluate.labels.show import quality_words
from mclabel.judge.consensus.rules import SAME_LOCATION
from mclabel.show.figures import Grid, estimate_text, number_text, share_words
from mclabel.show.texts import DESCRIBED

FIRST_ERRORS = {
    "decided": "decided",
    "of these right": "first_error_accuracy_decided",
    "first error": "first_error_accuracy",
    "where there is one": "first_error_accuracy_wrong",
    "right by a wrong step": "right_through_wrong",
}
WRONG_STEPS = {
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "sound, labelled wrong": "false_positive_rate",
    "kappa": "kappa",
}
STATES = {
    "first error": "first_error_accuracy",
    "right state": "agreement",
    "recovered steps": "recovered_steps",
    "precision": "recovered_precision",
    "recall": "recovered_recall",
    "F1": "recovered_f1",
    "sound, labelled wrong": "false_alarms",
}
REPEATED = {"of these right": "first error", "without sharing": "tokens"}
"""Columns that are left out where they are the same as another."""
FEW = "(!)"
"""Marks a group of few problems."""
AGAINST = {
    "exact": "exact truth",
    "processbench": "labels in ProcessBench's format",
    "prm800k": "labels in PRM800K's format",
    "run": "another run's labels",
    "people": "what people said",
}


def label_grids(report: LabelReport) -> list[Grid]:
    """Return every table of a report that has something to show."""
    grids = [
        *_quality(report),
        _states(report),
        *([] if report.sources is None else consensus_grids(report.sources)),
        _calibration(report),
        _intervals(report),
        _shape(report),
        _positions(report),
    ]
    return [_without_repeats(grid) for grid in grids if grid.rows]


def _without_repeats(grid: Grid) -> Grid:
    """Remove columns that repeat another column."""
    columns = dict(zip(grid.header, zip(*grid.rows, strict=True), strict=True))
    repeated = {a for a, b in REPEATED.items() if a in columns and columns[a] == columns.get(b)}
    kept = {name: cells for name, cells in columns.items() if name not in repeated}
    return replace(grid, header=tuple(kept), rows=tuple(zip(*kept.values(), strict=True)))


def _shown(report: LabelReport) -> dict[str, GroupReport]:
    """Return the groups in the tables, by their names there: all solutions, and groups of some
    size.
    """
    return {
        _named(name, group): group
        for name, group in report.groups.items()
        if name == ALL or group.num_problems >= FEW_IN_GROUP
    }


def _quality(report: LabelReport) -> list[Grid]:
    if report.truth is None:
        return []
    unknown = report.groups[ALL].num_unknown
    note = (
        "First error: labelled where it truly is, none for none; undecided is not right. Right by "
        "a wrong step: of right answers."
    )
    if unknown:
        note += f" {unknown:,} solutions are unknown to the truth and left out."
    if report.describes is not None:
        note += f" {DESCRIBED[report.describes]}"
    elif report.truth == "people":
        note += " Shares are of the whole run: weighted by 1 / probability of being drawn."
    groups = [(name, group.quality) for name, group in _shown(report).items() if group.quality]
    if any(group.num_problems < FEW_PROBLEMS for group in _shown(report).values()):
        note += f" {FEW}: under {FEW_PROBLEMS} problems, where intervals are too narrow."
    return [
        Grid(
            title=f"First errors against {AGAINST[report.truth]} [95% interval]",
            header=("", "problems", "solutions", *FIRST_ERRORS),
            conclusion=quality_words(groups[0][1]) if groups else "",
            rows=tuple(
                (
                    name,
                    f"{quality.num_problems:,}",
                    f"{quality.num_solutions:,}",
                    *(estimate_text(getattr(quality, field)) for field in FIRST_ERRORS.values()),
                )
                for name, quality in groups
            ),
            note=note,
        ),
        Grid(
            conclusion=" ".join(
                f"{share_words(overall.precision)} of steps labelled wrong are wrong, and "
                f"{share_words(overall.recall)} of wrong steps are labelled so."
                for _, overall in groups[:1]
            ),
            title=f"Wrong steps against {AGAINST[report.truth]}",
            header=("", *WRONG_STEPS),
            rows=tuple(
                (name, *(estimate_text(getattr(quality, field)) for field in WRONG_STEPS.values()))
                for name, quality in groups
            ),
            note="From the first error on steps are wrong. Kappa: agreement over steps, beyond "
            "chance.",
        ),
    ]


def _states(report: LabelReport) -> Grid:
    states = report.groups[ALL].states
    return Grid(
        conclusion=""
        if states is None
        else f"{share_words(states.agreement)} of steps are labelled with their true state.",
        title="States of steps against exact truth [95% interval]",
        header=("", "solutions", *STATES),
        rows=tuple(
            (
                name,
                f"{group.states.num_solutions:,}",
                *(estimate_text(getattr(group.states, field)) for field in STATES.values()),
            )
            for name, group in _shown(report).items()
            if group.states is not None
        ),
        note="Precision, recall and F1: of steps labelled recovered. Sound, labelled wrong: of "
        "steps that are sound or recovered in truth, those that are labelled error or carried.",
    )


def _calibration(report: LabelReport) -> Grid:
    rows = [
        (
            group,
            pair,
            f"{calibration.num_predictions:,}",
            estimate_text(calibration.ece),
            estimate_text(calibration.brier),
            estimate_text(calibration.base_brier),
        )
        for group, figures in _shown(report).items()
        for pair, calibration in figures.calibration.items()
    ]
    overall = report.groups[ALL].calibration.values()
    return Grid(
        conclusion=" ".join(
            f"On average, values differ from what came true by {100 * calibration.ece.value:.0f} "
            "points."
            for calibration in list(overall)[:1]
            if calibration.ece.value is not None
        ),
        title="Do the values hold",
        header=("", "predicted, observed", "steps", "ECE", "Brier", "Brier of the mean"),
        rows=tuple(rows),
        note="Outcome: what became of the solution itself, an independent draw. Sound: in truth. "
        "Reference: another run's rollouts. Brier of the mean: of predicting the overall "
        "share every time. Noise adds to ECE, and to its interval once more.",
    )


def _intervals(report: LabelReport) -> Grid:
    rows = [
        (
            group,
            source,
            f"{check.num_intervals:,}",
            f"{check.num_unchecked:,}",
            f"{check.reference_rollouts:.0f}",
            estimate_text(check.coverage),
            estimate_text(check.holds_share),
            estimate_text(check.width),
        )
        for group, figures in _shown(report).items()
        for source, check in figures.intervals.items()
        if source != ALL or len(figures.intervals) > 2
    ]
    overall = report.groups[ALL].intervals.get(ALL)
    return Grid(
        conclusion=""
        if overall is None
        else f"The 95% intervals hold the value in {share_words(overall.coverage)} of cases.",
        title="Do the intervals hold (95% nominal)",
        header=(
            "",
            "source",
            "intervals",
            "unchecked",
            "rollouts",
            "coverage",
            "hold the share",
            "width",
        ),
        rows=tuple(rows),
        note="Unchecked: the reference holds no rollouts of its own there; if many, the others are "
        "a selection. Rollouts: of the reference behind an interval, none seen by the labels. "
        "Coverage: mean posterior chance that the value lies inside, given both runs' rollouts. "
        "Hold the share: hold the reference's own share, which is noisy, so this is too low.",
    )


def _shape(report: LabelReport) -> Grid:
    def row(name: str, group: GroupReport) -> tuple[str, ...]:
        cost = group.cost
        return (
            name,
            estimate_text(group.monotonicity.rising_solutions),
            estimate_text(group.monotonicity.rising_pairs),
            number_text(cost.rollouts_per_solution),
            number_text(cost.tokens_per_solution),
            number_text(cost.tokens_per_solution_unshared),
        )

    overall = report.groups[ALL]
    return Grid(
        conclusion="A step is labelled sound after a wrong one in "
        f"{share_words(overall.monotonicity.rising_solutions)} of solutions; a solution costs "
        f"{number_text(overall.cost.tokens_per_solution)} tokens of rollouts.",
        title="Rising labels, and cost",
        header=(
            "",
            "solutions that rise",
            "pairs that rise",
            "rollouts",
            "tokens",
            "without sharing",
        ),
        rows=tuple(row(name, group) for name, group in _shown(report).items()),
        note="Rising: a step labelled sound after one labelled wrong. Rollouts and their tokens: a "
        "solution; identical prefixes of a problem are rolled out once.",
    )


def _positions(report: LabelReport) -> Grid:
    curves = report.groups[ALL].positions
    parts = sorted({(p.low, p.high) for curve in curves.values() for p in curve})
    ends = [
        estimate.value
        for estimate in (part.value for part in curves.get(ALL, ()))
        if estimate.value
    ]
    means = {name: {(p.low, p.high): p.value for p in curve} for name, curve in curves.items()}
    return Grid(
        conclusion=f"Values go from {ends[0]:.2f} at the beginning of solutions to {ends[-1]:.2f} "
        "near their end."
        if len(ends) > 1
        else "",
        title="Values by position in the solution",
        header=("", *(f"{low:.0%} to {high:.0%}" for low, high in parts)),
        rows=tuple(
            (name, *(estimate_text(by_part.get(part)) for part in parts))
            for name, by_part in means.items()
        ),
        note="The last step, whose label is the outcome, is left out.",
    )


def _named(name: str, group: GroupReport) -> str:
    return f"{name} {FEW}" if group.num_problems < FEW_PROBLEMS else name


LABELS = {
    "first error": "first_error_accuracy",
    "where there is one": "first_error_accuracy_wrong",
    "sound, labelled wrong": "false_positive_rate",
    "right by a wrong step, found": "lucky_found",
}
FLAGS = {
    "flagged": "flagged",
    "flags that hold": "holding",
    "sound solutions flagged": "flagged_sound",
}
RATES = {"false alarm": "false_alarm", "detection": "detection", "later": "later"}


def consensus_grids(report: ConsensusReport) -> list[Grid]:
    """Return tables of the quality of sources, alone and together; a table without rows has nothing
    to show.
    """
    return [_labels(report), _flags(report), _rates(report)]


def _labels(report: ConsensusReport) -> Grid:
    rows = [_row(name, source.labels) for name, source in report.sources.items()]
    rows.append(_row(SAME_LOCATION, report.same_location.labels))
    if report.same_location.surest is not None:
        rows.append(_row(f"  {report.rule}, as many", report.same_location.surest))
    rows.append(_row(f"the labels: {report.rule}", report.labels))
    if report.surest is not None:
        rows.append(_row(f"  surest {SUREST:.0%}", report.surest))
    best = report.labels.quality
    return Grid(
        conclusion="" if best is None else quality_words(best),
        title="Labels by each source and by all together [95% interval]",
        header=("", "kept", *LABELS),
        rows=tuple(rows),
        note="Kept: share of solutions on which a source says something, or which is kept; the "
        "other figures are over these. As many: the solutions of which the posterior is surest, as "
        f"many as {SAME_LOCATION} keeps.",
    )


def _row(name: str, labels: KeptQuality) -> tuple[str, ...]:
    quality = labels.quality
    return (
        name,
        estimate_text(labels.kept),
        *(
            "" if quality is None else estimate_text(getattr(quality, field))
            for field in LABELS.values()
        ),
    )


def _flags(report: ConsensusReport) -> Grid:
    return Grid(
        title="Judges that flag an error at a step or before it",
        header=("", *FLAGS),
        rows=tuple(
            (name, *(estimate_text(getattr(source.flags, field)) for field in FLAGS.values()))
            for name, source in report.sources.items()
            if source.flags is not None
        ),
        note="Flagged: share of solutions. Flags that hold: the first error is at the flag or "
        "before it.",
    )


def _rates(report: ConsensusReport) -> Grid:
    rows = []
    for name, source in report.sources.items():
        rates, learned = source.rates, source.learned_rates
        if rates is not None or learned:
            rows.append(
                (
                    name,
                    *(
                        "" if rates is None else estimate_text(getattr(rates, field))
                        for field in RATES.values()
                    ),
                    *(f"{learned[f]:.3f}" if f in learned else "" for f in RATES.values()),
                )
            )
    return Grid(
        title="How often a judge names a step",
        header=("", *RATES, *(f"learned {name}" for name in RATES)),
        rows=tuple(rows),
        note="A judge reads step after step, up to the one it names. False alarm: share of sound "
        "steps; detection: of first wrong ones; later: of those after them. Learned: what the "
        "posterior took them for, without truth.",
    )
