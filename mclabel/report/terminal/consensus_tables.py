"""The tables of `mclabel eval labels` for a combined run: a row a source or rule."""

from __future__ import annotations

from mclabel.evaluation.consensus_report import SUREST, ConsensusReport, KeptQuality
from mclabel.report.terminal.grid import Grid, estimate_text

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
    """What sources and rules are worth; a table without rows has nothing to show."""
    return [_labels(report), _flags(report), _rates(report)]


def _labels(report: ConsensusReport) -> Grid:
    rows = [_row(name, source.labels) for name, source in report.sources.items()]
    for name, rule in report.rules.items():
        rows.append(_row(name, rule.labels))
        if rule.surest is not None:
            rows.append(_row(f"  {report.rule}, as many", rule.surest))
    rows.append(_row(f"the labels: {report.rule}", report.labels))
    if report.surest is not None:
        rows.append(_row(f"  surest {SUREST:.0%}", report.surest))
    return Grid(
        title="Labels by each source and by rules over them [95% interval]",
        header=("", "kept", *LABELS),
        rows=tuple(rows),
        note="Kept: share of solutions on which a source says something, or which a rule keeps; "
        "the other figures are over these. As many: the solutions of which the posterior is "
        "surest, as many as the rule above keeps.",
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
