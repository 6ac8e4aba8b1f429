"""The health of a run, in the terminal and in the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from mclabel.evaluate.health import (
    CHECKS,
    MIN_SEEN,
    Figure,
    Finding,
    Health,
    run_health,
    share_text,
)
from mclabel.evaluate.health_counts import SOMETIMES
from mclabel.report.page.html import Html, details, join, paragraph, table
from mclabel.run.kinds import Run
from mclabel.show.figures import Grid

STYLES = {"error": "bold red", "warning": "yellow"}
NOTE = (
    f"Shares of fewer than {MIN_SEEN} are not judged. Problems count if they have at least four "
    "completions. docs/evaluation.md has the reasons for the thresholds."
)


def finding_lines(health: Health) -> Iterator[Text]:
    """For a terminal, a line a finding; a remedy is given once."""
    given: set[str] = set()
    for finding in health.findings:
        remedy = "" if finding.remedy in given else f" {finding.remedy}."
        given.add(finding.remedy)
        line = Text.assemble((f"{finding.severity}: ", STYLES[finding.severity]))
        yield line.append(f"{finding.text}.{remedy}")


def health_grid(health: Health) -> Grid:
    """Every figure, and from where on it is a finding."""
    return Grid(
        title="Health of the run",
        header=("", "share", "of", "warning from", "error from", ""),
        rows=tuple(_rows(health)),
        note=NOTE,
    )


def health_part(runs: Sequence[Run]) -> Html:
    """The section of the report: findings with their remedies, then every figure.

    Args:
        runs: of labels.

    Raises:
        ShardError: shards of one cannot be read.
    """
    parts = []
    for run in runs:
        if (health := run_health(run.store)) is None:
            continue
        title = f"Health of {run.name}" if len(runs) > 1 else "Health"
        parts.append(_findings(run.name, health))
        parts.append(
            details(
                f"{title}: every figure",
                table(health_grid(health).header, list(_rows(health)), caption=title),
                paragraph(NOTE, "quiet"),
            )
        )
    return join(*parts)


def _findings(name: str, health: Health) -> Html:
    if not health.findings:
        return paragraph(f"{name}: no check speaks against training on these labels.")
    rows = [[f.severity, f.text, f.remedy, f.why] for f in health.findings]
    errors = [finding.severity == "error" for finding in health.findings]
    return table(["", "what", "what to change", "why"], rows, caption=name, marked=errors)


def _rows(health: Health) -> Iterator[tuple[str, ...]]:
    found: dict[str, Finding] = {finding.check: finding for finding in health.findings}
    for name, figure in health.figures.items():
        check = CHECKS[name]
        yield (
            check.name,
            share_text(figure),
            f"{figure.total:,}",
            f"{check.warning:.0%}",
            "-" if check.error is None else f"{check.error:.1%}".replace(".0%", "%"),
            found[name].severity if name in found else "",
        )
    low, high = SOMETIMES
    name, rated = f"problems solved {low:.0%} to {high:.0%} of the time", health.solved_sometimes
    yield name, share_text(rated), f"{rated.total:,}", "-", "-", ""
    ungraded = health.figures["rollouts_ungraded"].count
    for reason, count in health.ungraded.items():
        share = share_text(Figure(count=count, total=ungraded))
        yield f"rollouts without a verdict: {reason}", share, f"{ungraded:,}", "-", "-", ""
    if health.median_steps is not None:
        yield "steps of a solution, median", f"{health.median_steps:g}", "", "", "", ""
        yield "steps of a solution, most", f"{health.max_steps}", "", "", "", ""
