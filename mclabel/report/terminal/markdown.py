"""Tables of the terminal as Markdown."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text


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
