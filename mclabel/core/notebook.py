"""HTML of records for notebooks, which call `_repr_html_` on the last value of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

MAX_TEXT = 2000
"""Maximum number of characters shown of a problem or a step."""
_BAR = (
    "<div style='width:5em;height:.7em;background:#8884'>"
    "<div style='width:{share:.0%};height:100%;background:{color}'></div></div>"
)


def render_steps_html(
    problem: str, summary: str, steps: Iterable[tuple[str, float | None, bool]]
) -> str:
    """Return the HTML of a problem, a summary of its solution, and its steps with bars for values.

    Args:
        problem: text of the problem.
        summary: one line about the solution.
        steps: for each step a tuple: its text, its value in [0, 1] (None if unknown), and True if
            it is the first error, which is shown in red.
    """
    lines = []
    for text, value, is_error in steps:
        color = "#c1502e" if is_error else "#1b6ca8"
        bar = "" if value is None else _BAR.format(share=value, color=color)
        lines.append(
            f"<tr{' style=color:#c1502e' if is_error else ''}><td>{bar}</td>"
            f"<td>{'' if value is None else f'{value:.2f}'}</td>"
            f"<td style='text-align:left'>{_escape_shortened(text.strip())}</td></tr>"
        )
    heading = f"<p>{_escape_shortened(problem)}</p><p>{_escape_shortened(summary)}</p>"
    return f"{heading}<table>{''.join(lines)}</table>"


def render_table_html(fields: Mapping[str, object]) -> str:
    """Return names and values as an HTML table of two columns, with long values shortened."""
    rows = (
        f"<tr><th>{name}</th><td>{_escape_shortened(str(value))}</td></tr>"
        for name, value in fields.items()
    )
    return f"<table>{''.join(rows)}</table>"


def _escape_shortened(text: str) -> str:
    """Return at most `MAX_TEXT` characters of a text as HTML."""
    shortened = text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
    return escape(shortened).replace("\n", "<br>")
