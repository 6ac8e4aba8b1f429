"""The table of `mclabel eval processbench`."""

from __future__ import annotations

from collections import Counter

from mclabel.evaluation.processbench import ProcessBenchResult
from mclabel.report.terminal.grid import Grid, estimate_text

MAX_NAMED = 5
WHY = {
    "too_long": "longer than the PRM reads (its max_tokens)",
    "unreadable": "not to be read by the PRM's tokenizer",
    "not_in_run": "not in the run",
    "no_verdict": "cut, or without a verdict on their answer",
    "outcome_only": "labelled at their last step alone",
    "other_steps": "of another number of steps in the run",
    "unknown": "for no known reason",
}
"""What is left out, by reason."""


def processbench_grid(result: ProcessBenchResult) -> Grid:
    """A row a split, and their mean."""
    rows = [
        (
            name,
            f"{split.num_wrong:,}",
            f"{split.num_right:,}",
            f"{len(split.missing):,}",
            estimate_text(split.wrong_accuracy),
            estimate_text(split.right_accuracy),
            estimate_text(split.f1),
        )
        for name, split in result.splits.items()
    ]
    missing = [identity for split in result.splits.values() for identity in split.missing]
    notes = ["F1: harmonic mean of the accuracies on wrong (exact step) and on right solutions."]
    if result.threshold is not None:
        notes.append(f"A step is wrong under {result.threshold:.6g}.")
    if missing:
        named = ", ".join(missing[:MAX_NAMED]) + (", …" if len(missing) > MAX_NAMED else "")
        notes.append(f"Left out for want of a prediction: {len(missing):,} ({named}).")
        reasons = sum((Counter(split.reasons) for split in result.splits.values()), Counter())
        why = "; ".join(f"{n:,} {WHY.get(code, code)}" for code, n in reasons.most_common())
        notes.append(f"Why: {why}. With -o each has its reason in left_out.jsonl.")
    return Grid(
        title="ProcessBench [95% interval]",
        header=("split", "wrong", "right", "left out", "on wrong", "on right", "F1"),
        rows=(*rows, ("mean", "", "", "", "", "", estimate_text(result.mean_f1))),
        note=" ".join(notes),
    )
