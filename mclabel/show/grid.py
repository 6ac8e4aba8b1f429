"""Tables that are shown in the terminal and written as Markdown alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from mclabel.core.stats.bootstrap import Estimate

_LEADING_ZERO = re.compile(r"(?<![\d.])0(?=\.)")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of texts."""

    title: str
    header: tuple[str, ...]
    """Of the columns; the first names the rows."""
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def rich_table(grid: Grid) -> Table:
    """For a terminal; nothing in it is read as markup."""
    table = Table(title=Text(grid.title), title_justify="left")
    for number, name in enumerate(grid.header):
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for row in grid.rows:
        table.add_row(*map(Text, row))
    table.caption, table.caption_justify = Text(grid.note), "left"
    return table


def markdown(grids: Sequence[Grid]) -> str:
    """As GitHub's Markdown, one after the other."""
    return "\n".join(to_markdown(rich_table(grid)) for grid in grids)


def estimate_text(estimate: Estimate | None) -> str:
    """`0.66 [.60, .72]`, or `-` for nothing to measure."""
    if estimate is None or estimate.value is None:
        return "-"
    low, high = (_LEADING_ZERO.sub("", f"{end:.2f}") for end in (estimate.low, estimate.high))
    return f"{estimate.value:.2f} [{low}, {high}]"


def number_text(estimate: Estimate) -> str:
    """`1,495 [1,203, 1,801]`, or `-`."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:,.0f} [{estimate.low:,.0f}, {estimate.high:,.0f}]"


def to_markdown(table: Table) -> str:
    """A table of plain cells as a GitHub table, its title above and its caption below."""
    columns = [[str(column.header), *map(_plain, column.cells)] for column in table.columns]
    rows = [[_cell(text) for text in row] for row in zip(*columns, strict=True)]
    rule = ["---:" if column.justify == "right" else "---" for column in table.columns]
    lines = [f"**{table.title}**", ""] if table.title else []
    lines += ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    lines += ["", str(table.caption)] if table.caption else []
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").splitlines())


def _plain(cell: object) -> str:
    return Text.from_markup(cell).plain if isinstance(cell, str) else str(cell)
