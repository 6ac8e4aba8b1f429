"""HTML of the report, by hand: whatever is put in as text is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from itertools import zip_longest
from typing import Any, NamedTuple

from mclabel.show.files import STATIC

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


def figure(identity: str, spec: Mapping[str, Any], numbers: Html, note: str = "") -> Html:
    """A plot with the numbers in it as a table.

    Args:
        identity: unique in the page.
        spec: `data` and `layout` of Plotly; `layout.title.text` names it.
        numbers: the same as a table.
        note: how to read it.
    """
    title = spec["layout"]["title"]["text"]
    content = json.dumps(spec, allow_nan=False, separators=(",", ":"))
    data = Html(f'<script type="application/json" class="spec">{_inside_script(content)}</script>')
    return tag(
        "figure",
        tag("h3", title),
        tag("div", class_="plot", id=identity, role="img", aria_label=f"Plot: {title}"),
        data,
        tag("figcaption", note),
        details("Numbers", numbers),
    )


def page(title: str, *parts: Html) -> str:
    """A whole page that needs nothing but itself; only this package's own scripts run in it."""
    scripts = [
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("theme.js", "vendor/plotly/plotly-basic.min.js", "report/report.js")
    ]
    styles = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("theme.css", "solution.css", "report/report.css")
    )
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    # Plotly writes styles of its own; nothing that styles can do here reaches a network.
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = (
        '<meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{styles}</style><script>{scripts[0]}</script>"
    )
    body = join(*parts).markup
    late = "".join(f"<script>{script}</script>" for script in scripts[1:])
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n'
        f"<body>\n{body}\n{late}</body></html>\n"
    )


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


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _inside_script(content: str) -> str:
    """JSON that cannot end the element it lies in."""
    return content.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
