"""What a run holds, and the quality of its labels, in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.markup import escape
from rich.table import Table

from mclabel.core.records import LabeledSolution, Outcome
from mclabel.core.stats.bootstrap import Estimate
from mclabel.evaluate.labels.quality import LabelCost, LabelQuality
from mclabel.show.grid import estimate_text

QUALITY_ROWS = {
    "pass@1": "pass_at_1",
    "wrong steps": "wrong_steps",
    "decided": "decided",
    "first error found": "first_error_accuracy",
    "  where there is one": "first_error_accuracy_wrong",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "kappa": "kappa",
    "false positives": "false_positive_rate",
    "lucky answers": "right_through_wrong",
}


def quality_table(groups: Mapping[str, LabelQuality]) -> Table:
    """Label quality against truth, a column a group of solutions."""
    table = Table(title="Labels against exact truth [95% interval]", title_justify="left")
    table.add_column("")
    for name in groups:
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("problems", "solutions"):
        table.add_row(name, *(f"{getattr(q, f'num_{name}'):,}" for q in groups.values()))
    for name, field in QUALITY_ROWS.items():
        table.add_row(name, *(_estimate(getattr(q, field)) for q in groups.values()))
    table.caption = (
        "first error found: labelled where it truly is, none for none. Precision and recall: of "
        "wrong steps. False positives: of sound steps. Lucky: right answers by a wrong step."
    )
    table.caption_justify = "left"
    return table


def counts_table(rows: Sequence[LabeledSolution], cost: LabelCost) -> Table:
    """What a run holds and what it cost."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(style="dim")
    table.add_column(justify="right")
    outcomes = {o: sum(r.solution.outcome is o for r in rows) for o in Outcome}
    labels = [step.hard for row in rows for step in row.steps]
    table.add_row("problems", f"{len({r.problem.id for r in rows}):,}")
    table.add_row("solutions", f"{len(rows):,}")
    for outcome, count in outcomes.items():
        if count or outcome in (Outcome.RIGHT, Outcome.WRONG):
            table.add_row(f"  {outcome}", f"{count:,}")
    if (kept := num_kept(rows)) is not None:
        table.add_row("  kept by the consensus", f"{kept:,}")
    table.add_row("steps", f"{len(labels):,}")
    table.add_row("  labelled sound", f"{sum(x is True for x in labels):,}")
    table.add_row("  labelled wrong", f"{sum(x is False for x in labels):,}")
    table.add_row("  without a verdict", f"{sum(x is None for x in labels):,}")
    table.add_row("rollout tokens a solution", f"{cost.tokens_per_solution:,.0f}")
    table.add_row("  without sharing prefixes", f"{cost.tokens_per_solution_unshared:,.0f}")
    return table


def num_kept(rows: Sequence[LabeledSolution]) -> int | None:
    """Number of solutions that a consensus keeps; None of a run that is not combined."""
    found = [row.consensus.kept for row in rows if row.consensus is not None]
    return sum(found) if found else None


def _estimate(estimate: Estimate) -> str:
    return escape(estimate_text(estimate))
