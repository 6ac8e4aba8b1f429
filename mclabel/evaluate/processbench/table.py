"""The table of `mclabel eval processbench`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mclabel.evaluate.processbench.figures import Panel, ProcessBenchResult
from mclabel.show.grid import Grid, estimate_text

MAX_NAMED = 5
WHY = {
    "too_long": "longer than the PRM reads (its max_tokens)",
    "unreadable": "not to be read by the PRM's tokenizer",
    "not_in_run": "not in the run",
    "no_verdict": "cut, or without a verdict on their answer",
    "outcome_only": "labelled at their last step alone",
    "other_steps": "of another number of steps in the run",
    "other_text": "of another text in the run",
    "no_opinion": "without an opinion of the judge",
    "unscored": "without a verdict of the scorer",
    "not_kept": "not kept by the rule",
    "unknown": "for no known reason",
}
"""What is left out, by reason."""


def processbench_grid(result: ProcessBenchResult) -> Grid:
    """A row a split, and their mean."""
    panel = result.panel
    has_rule = panel is not None and panel.rule is not None
    has_scores = any(split.ece is not None for split in result.splits.values())
    rows = [
        (
            name,
            f"{split.num_wrong:,}",
            f"{split.num_right:,}",
            f"{len(split.missing):,}",
            *((estimate_text(split.kept),) if has_rule else ()),
            estimate_text(split.wrong_accuracy),
            estimate_text(split.right_accuracy),
            estimate_text(split.f1),
            *((estimate_text(split.ece),) if has_scores else ()),
        )
        for name, split in result.splits.items()
    ]
    missing = [identity for split in result.splits.values() for identity in split.missing]
    notes = ["F1: harmonic mean of the accuracies on wrong (exact step) and on right solutions."]
    if result.threshold is not None:
        notes.append(f"A step is wrong under {result.threshold:.6g}.")
    if has_scores:
        notes.append("ECE: calibration error of the steps' scores, up to the first error.")
    if panel is not None:
        notes += _panel_notes(panel)
    if result.num_rejected:
        counts = ", ".join(f"{count:,} of {name}" for name, count in result.num_rejected.items())
        notes.append(
            f"Rows that cannot be used: {counts}. With -o the reasons are in left_out.jsonl."
        )
    if num_unknown := sum(split.num_unknown for split in result.splits.values()):
        num = sum(one.num_wrong + one.num_right for one in result.splits.values())
        notes.append(
            f"Unknown to the scorer, and counted as predicted wrongly: {num_unknown:,} of {num:,} "
            f"({num_unknown / num:.1%})."
        )
    if missing:
        named = ", ".join(missing[:MAX_NAMED]) + (", …" if len(missing) > MAX_NAMED else "")
        notes.append(f"Left out for want of a prediction: {len(missing):,} ({named}).")
        reasons = sum((Counter(split.reasons) for split in result.splits.values()), Counter())
        why = "; ".join(f"{n:,} {WHY.get(code, code)}" for code, n in reasons.most_common())
        notes.append(f"Why: {why}. With -o each has its reason in left_out.jsonl.")
    counted = ("split", "wrong", "right", "left out", *(("kept",) if has_rule else ()))
    more, blank = (("ECE",), ("",)) if has_scores else ((), ())
    return Grid(
        title="ProcessBench [95% interval]",
        header=(*counted, "on wrong", "on right", "F1", *more),
        rows=(*rows, ("mean", *[""] * (len(counted) + 1), estimate_text(result.mean_f1), *blank)),
        note=" ".join(notes),
    )


def _panel_notes(panel: Panel) -> Iterator[str]:
    """Whose opinions are measured, and how."""
    named = (
        f"{name} by {', '.join(judge.name for judge in judges)}"
        for name, judges in panel.judges.items()
    )
    yield f"Judged: {'; '.join(named)}."
    if panel.rule is not None:
        yield (
            f"The rule {panel.rule} makes one prediction of their opinions; kept: share of the "
            "split's solutions on which they agree as it demands. The accuracies are over those."
        )
        return
    claims = {one.name: one.claim for judges in panel.judges.values() for one in judges}
    if flagging := sorted(name for name, claim in claims.items() if claim == "at_or_before"):
        yield (
            f"{', '.join(flagging)} claims only that an error is at a step or before it: that "
            "step is the prediction, and no error where it says nothing."
        )
