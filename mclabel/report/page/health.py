"""Health checks of a run, shown in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from mclabel.evaluate.health import (
    CHECKS,
    MIN_SEEN,
    CountedShare,
    Finding,
    Health,
    assess_run_health,
    convert_health_to_json,
    format_share,
)
from mclabel.evaluate.health_counts import SOLVED_SOMETIMES
from mclabel.run.shards.store import Store
from mclabel.show.figures import Grid

STYLES = {"error": "bold red", "warning": "yellow"}
HEADER = ("", "share", "of", "warning from", "error from", "")
NOTE = (
    f"A share of fewer than {MIN_SEEN} items is not checked. Problems count if they have at least "
    "four completions. docs/evaluation.md gives the reasons for the thresholds."
)


def format_findings(health: Health) -> Iterator[Text]:
    """Yield one line for each finding, for a terminal; the same remedy is printed only once."""
    printed_remedies: set[str] = set()
    for finding in health.findings:
        remedy = "" if finding.remedy in printed_remedies else f" {finding.remedy}."
        printed_remedies.add(finding.remedy)
        line = Text.assemble((f"{finding.severity}: ", STYLES[finding.severity]))
        yield line.append(f"{finding.text}.{remedy}")


def make_health_grid(health: Health) -> Grid:
    """Return a table of all checked shares with the thresholds of warnings and errors."""
    return Grid(
        title="Health of the run",
        header=HEADER,
        rows=tuple(row for row in _make_health_rows(health) if row[1] not in ("0%", "-")),
        note=f"{NOTE} Shares of 0% are left out.",
        conclusion=f"{len(health.findings)} checks did not pass; remedies are listed below."
        if health.findings
        else "All checks passed.",
    )


def collect_health_data(store: Store) -> dict[str, Any] | None:
    """Return the findings and checked shares of a run; None if the run has no block yet."""
    if (health := assess_run_health(store)) is None:
        return None
    header = ("figure", *HEADER[1:-1], "finding")
    rows = [dict(zip(header, row, strict=True)) for row in _make_health_rows(health)]
    finding_rows = [
        {
            "": finding.severity,
            "what": finding.text,
            "what to change": finding.remedy,
            "why": finding.why,
        }
        for finding in health.findings
    ]
    return {**convert_health_to_json(health), "problems": finding_rows, "table": rows}


def _make_health_rows(health: Health) -> Iterator[tuple[str, ...]]:
    by_check: dict[str, Finding] = {finding.check: finding for finding in health.findings}
    for name, figure in health.figures.items():
        check = CHECKS[name]
        yield (
            check.name,
            format_share(figure),
            f"{figure.total:,}",
            f"{check.warning_share:.0%}",
            "-" if check.error_share is None else f"{check.error_share:.1%}".replace(".0%", "%"),
            by_check[name].severity if name in by_check else "",
        )
    low, high = SOLVED_SOMETIMES
    name, solved_sometimes = (
        f"problems solved {low:.0%} to {high:.0%} of the time",
        health.solved_sometimes,
    )
    yield name, format_share(solved_sometimes), f"{solved_sometimes.total:,}", "-", "-", ""
    ungraded = health.figures["rollouts_ungraded"].count
    for reason, count in health.ungraded.items():
        share = format_share(CountedShare(count=count, total=ungraded))
        yield f"rollouts without a verdict: {reason}", share, f"{ungraded:,}", "-", "-", ""
    if health.median_steps is not None:
        yield "steps of a solution, median", f"{health.median_steps:g}", "", "", "", ""
        yield "steps of a solution, most", f"{health.max_steps}", "", "", "", ""
