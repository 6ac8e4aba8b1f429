"""HTML of the report, by hand: whatever is put in as text is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from itertools import zip_longest
from typing import NamedTuple

from mclabel.show.files import STATIC
from mclabel.show.plots import Plot, svg

MAX_CELL = 2000
"""Characters of a text."""


class Html(NamedTuple):
    """Markup that is safe to put in a page as it stands."""

    markup: str


def text(content: object) -> Html:
    """Any text, escaped and bounded."""
    if isinstance(content, Html):
        return content
    whole = str(content)
    return Html(escape(visible(whole[:MAX_CELL]) + more(whole)))


def visible(content: str) -> str:
    """A text with what would hide or reorder it as codes; not escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in content)


def more(whole: str) -> str:
    """How much of a text is left out where it is bounded; empty if nothing is."""
    return f"… ({len(whole) - MAX_CELL:,} more characters)" if len(whole) > MAX_CELL else ""


def ranged(value: float | None, low: float | None, high: float | None, form: str = ".2f") -> Html:
    """A figure and its interval, `-` without any."""
    if value is None or low is None or high is None:
        return Html("-")
    return Html(f"{value:{form}} <small>[{low:{form}}, {high:{form}}]</small>")


def join(*parts: Html) -> Html:
    """One after the other."""
    return Html("\n".join(part.markup for part in parts))


def tag(name: str, *parts: object, **attributes: str) -> Html:
    """An element. `class_` is `class`; texts among its parts are escaped."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value, quote=True)}"'
        for key, value in attributes.items()
    )
    return Html(f"<{name}{given}>{''.join(text(part).markup for part in parts)}</{name}>")


def table(
    head: Sequence[object],
    rows: Sequence[Sequence[object]],
    *,
    caption: str,
    marked: Sequence[bool] = (),
) -> Html:
    """A table whose first column names its rows; figures are aligned to the right.

    Args:
        head: of the columns.
        rows: cells, the first naming the row.
        caption: what it is.
        marked: rows to be stressed.
    """
    columns = list(zip(*rows, strict=True)) if rows else []
    kinds = ["figure" if sum(map(_is_figure, c)) * 2 > len(c) else "word" for c in columns]
    lines = [
        tag(
            "tr",
            tag("th", cells[0], scope="row"),
            *(_cell(c, kind) for c, kind in zip(cells[1:], kinds[1:], strict=True)),
            **({"class_": "marked"} if number < len(marked) and marked[number] else {}),
        )
        for number, cells in enumerate(rows)
    ]
    names = (
        tag(
            "th",
            _breakable(name),
            scope="col",
            **({"class_": "figure"} if kind == "figure" else {}),
        )
        for name, kind in zip_longest(head, kinds)
    )
    inner = tag(
        "table", tag("caption", caption), tag("thead", tag("tr", *names)), tag("tbody", *lines)
    )
    return tag("div", inner, class_="wide", tabindex="0", role="region", aria_label=caption)


def section(identity: str, title: str, *parts: Html) -> Html:
    """A part of the page with a heading of its own."""
    return tag("section", tag("h2", title), *parts, id=identity)


def details(summary: str, *parts: Html) -> Html:
    """What opens when it is asked for."""
    return tag("details", tag("summary", summary), *parts)


def figure(identity: str, plot: Plot, numbers: Html, note: str = "") -> Html:
    """A plot with the numbers in it as a table.

    Args:
        identity: unique in the page.
        plot: with a title.
        numbers: the same as a table.
        note: how to read it.
    """
    return tag(
        "figure",
        tag("h3", plot.title),
        tag("div", Html(svg(plot, identity)), class_="plot", id=identity, tabindex="0"),
        tag("figcaption", note),
        details("Numbers", numbers),
    )


def page(title: str, *parts: Html) -> str:
    """A whole page that needs nothing but itself; only this package's own scripts run in it."""
    script = (STATIC / "theme.js").read_text(encoding="utf-8")
    styles = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("theme.css", "solution.css", "report/report.css")
    )
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(styles)}'; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{styles}</style><script>{script}</script>"
    )
    body = join(*parts).markup
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _cell(content: object, kind: str) -> Html:
    """A cell of a column; a text among figures may take several lines."""
    odd = kind == "figure" and not _is_figure(content) and content != "-"
    return tag("td", content, class_="figure text" if odd else kind)


def _breakable(name: object) -> Html:
    """A name that may go on in the next line after a colon, as scorers' names do."""
    return Html(text(name).markup.replace(":", ":<wbr>"))


def _is_figure(cell: object) -> bool:
    shown = cell.markup if isinstance(cell, Html) else cell
    if isinstance(shown, str):
        return shown == "" or shown[0] in "0123456789+-.["
    return isinstance(shown, int | float)


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
