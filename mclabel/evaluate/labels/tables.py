"""Makes the tables of `mclabel eval labels`, with one row per group of problems."""

from __future__ import annotations

from dataclasses import replace

from mclabel.core.stats.bootstrap import FEW_PROBLEMS
from mclabel.evaluate.grouping import MIN_GROUP_PROBLEMS
from mclabel.evaluate.labels.consensus import SUREST_SHARE, ConsensusReport, KeptQuality
from mclabel.evaluate.labels.report import ALL, GroupReport, LabelReport
from mclabel.evaluate.labels.show import summarise_quality
from mclabel.judge.consensus.rules import SAME_LOCATION
from mclabel.show.figures import Grid, describe_share, format_estimate, format_whole_estimate
from mclabel.show.texts import DESCRIBED

FIRST_ERROR_COLUMNS = {
    "decided": "decided",
    "of these right": "first_error_accuracy_decided",
    "first error": "first_error_accuracy",
    "if there is an error": "first_error_accuracy_wrong",
    "right by a wrong step": "right_through_wrong",
}
WRONG_STEP_COLUMNS = {
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "sound, labelled wrong": "false_positive_rate",
    "kappa": "kappa",
}
STATE_COLUMNS = {
    "first error": "first_error_accuracy",
    "right state": "agreement",
    "recovered steps": "recovered_steps",
    "precision": "recovered_precision",
    "recall": "recovered_recall",
    "F1": "recovered_f1",
    "sound, labelled wrong": "false_alarms",
}
REPEATED_COLUMNS = {"of these right": "first error", "without sharing": "tokens"}
"""Names of columns that are left out if all their cells equal those of the column named by the
value."""
FEW_MARK = "(!)"
"""Mark after the name of a group with so few problems that its figures are uncertain."""
TRUTH_NAMES = {
    "exact": "exact truth",
    "processbench": "labels in ProcessBench's format",
    "prm800k": "labels in PRM800K's format",
    "run": "another run's labels",
    "people": "people's labels",
}


def make_label_grids(report: LabelReport) -> list[Grid]:
    """Return the tables of a report, leaving out tables without rows."""
    grids = [
        *_make_quality_grids(report),
        _make_state_grid(report),
        *(
            []
            if report.sources is None
            else [
                _make_label_grid(report.sources),
                _make_flag_grid(report.sources),
                _make_rate_grid(report.sources),
            ]
        ),
        _make_calibration_grid(report),
        _make_interval_coverage_grid(report),
        _make_monotonicity_and_cost_grid(report),
        _make_position_grid(report),
    ]
    return [_drop_repeated_columns(grid) for grid in grids if grid.rows]


def _drop_repeated_columns(grid: Grid) -> Grid:
    """Return a table without the columns that repeat another column (`REPEATED_COLUMNS`)."""
    columns = dict(zip(grid.header, zip(*grid.rows, strict=True), strict=True))
    repeated = {
        a for a, b in REPEATED_COLUMNS.items() if a in columns and columns[a] == columns.get(b)
    }
    kept = {name: cells for name, cells in columns.items() if name not in repeated}
    return replace(grid, header=tuple(kept), rows=tuple(zip(*kept.values(), strict=True)))


def _select_shown_groups(report: LabelReport) -> dict[str, GroupReport]:
    """Return the groups that the tables show, by displayed name.

    They are the group of all solutions, and groups with enough problems.
    """
    return {
        (f"{name} {FEW_MARK}" if group.num_problems < FEW_PROBLEMS else name): group
        for name, group in report.groups.items()
        if name == ALL or group.num_problems >= MIN_GROUP_PROBLEMS
    }


def _make_quality_grids(report: LabelReport) -> list[Grid]:
    if report.truth is None:
        return []
    unknown = report.groups[ALL].num_unknown
    note = (
        "First error: share of solutions whose labelled first error, or its absence, is true; "
        "undecided solutions count as not right. Right by a wrong step: share of right answers."
    )
    if unknown:
        note += f" {unknown:,} solutions without a known truth are left out."
    if report.describes is not None:
        note += f" {DESCRIBED[report.describes]}"
    elif report.truth == "people":
        note += (
            " Shares refer to the whole run: solutions are weighted by 1 / probability of being "
            "drawn."
        )
    groups = [
        (name, group.quality)
        for name, group in _select_shown_groups(report).items()
        if group.quality
    ]
    if any(group.num_problems < FEW_PROBLEMS for group in _select_shown_groups(report).values()):
        note += f" {FEW_MARK}: fewer than {FEW_PROBLEMS} problems, so intervals are too narrow."
    return [
        Grid(
            title=f"First errors against {TRUTH_NAMES[report.truth]} [95% interval]",
            header=("", "problems", "solutions", *FIRST_ERROR_COLUMNS),
            conclusion=summarise_quality(groups[0][1]) if groups else "",
            rows=tuple(
                (
                    name,
                    f"{quality.num_problems:,}",
                    f"{quality.num_solutions:,}",
                    *(
                        format_estimate(getattr(quality, field))
                        for field in FIRST_ERROR_COLUMNS.values()
                    ),
                )
                for name, quality in groups
            ),
            note=note,
        ),
        Grid(
            conclusion=" ".join(
                f"{describe_share(overall.precision)} of steps labelled wrong are wrong, and "
                f"{describe_share(overall.recall)} of wrong steps are labelled so."
                for _, overall in groups[:1]
            ),
            title=f"Wrong steps against {TRUTH_NAMES[report.truth]}",
            header=("", *WRONG_STEP_COLUMNS),
            rows=tuple(
                (
                    name,
                    *(
                        format_estimate(getattr(quality, field))
                        for field in WRONG_STEP_COLUMNS.values()
                    ),
                )
                for name, quality in groups
            ),
            note="All steps from the first error on count as wrong. Kappa: agreement over steps, "
            "beyond chance.",
        ),
    ]


def _make_state_grid(report: LabelReport) -> Grid:
    states = report.groups[ALL].states
    return Grid(
        conclusion=""
        if states is None
        else f"{describe_share(states.agreement)} of steps are labelled with their true state.",
        title="States of steps against exact truth [95% interval]",
        header=("", "solutions", *STATE_COLUMNS),
        rows=tuple(
            (
                name,
                f"{group.states.num_solutions:,}",
                *(
                    format_estimate(getattr(group.states, field))
                    for field in STATE_COLUMNS.values()
                ),
            )
            for name, group in _select_shown_groups(report).items()
            if group.states is not None
        ),
        note="Precision, recall and F1: of steps labelled recovered. Sound, labelled wrong: share "
        "of truly sound or recovered steps that are labelled error or carried.",
    )


def _make_calibration_grid(report: LabelReport) -> Grid:
    rows = [
        (
            group,
            pair,
            f"{calibration.num_predictions:,}",
            format_estimate(calibration.ece),
            format_estimate(calibration.brier),
            format_estimate(calibration.base_brier),
        )
        for group, figures in _select_shown_groups(report).items()
        for pair, calibration in figures.calibration.items()
    ]
    overall = report.groups[ALL].calibration.values()
    return Grid(
        conclusion=" ".join(
            "On average, values differ from observed shares by "
            f"{100 * calibration.ece.value:.0f} points."
            for calibration in list(overall)[:1]
            if calibration.ece.value is not None
        ),
        title="Do the values hold",
        header=("", "predicted, observed", "steps", "ECE", "Brier", "Brier of the mean"),
        rows=tuple(rows),
        note="Outcome: the outcome of the solution itself, an independent draw. Sound: the step is "
        "truly sound. Reference: another run's rollouts. Brier of the mean: Brier score of always "
        "predicting the overall share. Noise makes ECE, and even more its interval, larger.",
    )


def _make_interval_coverage_grid(report: LabelReport) -> Grid:
    rows = [
        (
            group,
            source,
            f"{check.num_intervals:,}",
            f"{check.num_unchecked:,}",
            f"{check.reference_rollouts:.0f}",
            format_estimate(check.coverage),
            format_estimate(check.holds_share),
            format_estimate(check.width),
        )
        for group, figures in _select_shown_groups(report).items()
        for source, check in figures.intervals.items()
        if source != ALL or len(figures.intervals) > 2
    ]
    overall = report.groups[ALL].intervals.get(ALL)
    return Grid(
        conclusion=""
        if overall is None
        else f"The 95% intervals hold the value in {describe_share(overall.coverage)} of cases.",
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
        note="Unchecked: the reference has no independent rollouts for these intervals; if there "
        "are many, the checked ones may be a biased selection. Rollouts: mean number of independent"
        " rollouts of the reference. Coverage: mean posterior probability that the value is in the "
        "interval, given both runs' rollouts. Hold the share: share of intervals that contain the "
        "reference's share, which is noisy, so this figure is too low.",
    )


def _make_monotonicity_and_cost_grid(report: LabelReport) -> Grid:
    def make_row(name: str, group: GroupReport) -> tuple[str, ...]:
        cost = group.cost
        return (
            name,
            format_estimate(group.monotonicity.rising_solutions),
            format_estimate(group.monotonicity.rising_pairs),
            format_whole_estimate(cost.rollouts_per_solution),
            format_whole_estimate(cost.tokens_per_solution),
            format_whole_estimate(cost.tokens_per_solution_unshared),
        )

    overall = report.groups[ALL]
    return Grid(
        conclusion="A step is labelled sound after a wrong one in "
        f"{describe_share(overall.monotonicity.rising_solutions)} of solutions; a solution costs "
        f"{format_whole_estimate(overall.cost.tokens_per_solution)} tokens of rollouts.",
        title="Rising labels, and cost",
        header=(
            "",
            "solutions that rise",
            "pairs that rise",
            "rollouts",
            "tokens",
            "without sharing",
        ),
        rows=tuple(make_row(name, group) for name, group in _select_shown_groups(report).items()),
        note="Rising: a step labelled sound after a step labelled wrong. Rollouts, tokens: means "
        "per solution; identical prefixes of a problem are rolled out once.",
    )


def _make_position_grid(report: LabelReport) -> Grid:
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
            (name, *(format_estimate(by_part.get(part)) for part in parts))
            for name, by_part in means.items()
        ),
        note="The last step, whose label is the outcome, is left out.",
    )


LABEL_COLUMNS = {
    "first error": "first_error_accuracy",
    "if there is an error": "first_error_accuracy_wrong",
    "sound, labelled wrong": "false_positive_rate",
    "right by a wrong step, found": "lucky_found",
}
FLAG_COLUMNS = {
    "flagged": "flagged",
    "flags that hold": "holding",
    "sound solutions flagged": "flagged_sound",
}
RATE_COLUMNS = {"false alarm": "false_alarm", "detection": "detection", "later": "later"}


def _make_label_grid(report: ConsensusReport) -> Grid:
    rows = [_make_quality_row(name, source.labels) for name, source in report.sources.items()]
    rows.append(_make_quality_row(SAME_LOCATION, report.same_location.labels))
    if report.same_location.surest is not None:
        rows.append(_make_quality_row(f"  {report.rule}, as many", report.same_location.surest))
    rows.append(_make_quality_row(f"the labels: {report.rule}", report.labels))
    if report.surest is not None:
        rows.append(_make_quality_row(f"  surest {SUREST_SHARE:.0%}", report.surest))
    best = report.labels.quality
    return Grid(
        conclusion="" if best is None else summarise_quality(best),
        title="Labels by each source and by all together [95% interval]",
        header=("", "kept", *LABEL_COLUMNS),
        rows=tuple(rows),
        note="Kept: share of solutions on which a source has an opinion, or that are kept; the "
        "other figures are over these solutions. As many: the solutions with the surest posterior, "
        f"in the same number as {SAME_LOCATION} keeps.",
    )


def _make_quality_row(name: str, labels: KeptQuality) -> tuple[str, ...]:
    quality = labels.quality
    return (
        name,
        format_estimate(labels.kept),
        *(
            "" if quality is None else format_estimate(getattr(quality, field))
            for field in LABEL_COLUMNS.values()
        ),
    )


def _make_flag_grid(report: ConsensusReport) -> Grid:
    return Grid(
        title="Judges that flag an error at a step or before it",
        header=("", *FLAG_COLUMNS),
        rows=tuple(
            (
                name,
                *(format_estimate(getattr(source.flags, field)) for field in FLAG_COLUMNS.values()),
            )
            for name, source in report.sources.items()
            if source.flags is not None
        ),
        note="Flagged: share of solutions with a flag. Flags that hold: share of flagged solutions "
        "whose first error is at the flag or before it.",
    )


def _make_rate_grid(report: ConsensusReport) -> Grid:
    rows = []
    for name, source in report.sources.items():
        rates, learned = source.rates, source.learned_rates
        if rates is not None or learned:
            rows.append(
                (
                    name,
                    *(
                        "" if rates is None else format_estimate(getattr(rates, field))
                        for field in RATE_COLUMNS.values()
                    ),
                    *(f"{learned[f]:.3f}" if f in learned else "" for f in RATE_COLUMNS.values()),
                )
            )
    return Grid(
        title="How often a judge names a step",
        header=("", *RATE_COLUMNS, *(f"learned {name}" for name in RATE_COLUMNS)),
        rows=tuple(rows),
        note="A judge is assumed to read the steps in order, up to the one that it names. Figures "
        "are shares of read steps that it names. False alarm: of sound steps. Detection: of first "
        "wrong steps. Later: of steps after the first wrong one. Learned: rates that the posterior "
        "has learned without truth.",
    )
