"""HTML of the report, by hand: whatever is put in as text is escaped."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise, zip_longest
from typing import NamedTuple

from mclabel.core.stats.bootstrap import Estimate
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


_REACH = 0.3
"""Largest difference that a signed bar can show; what is beyond lies at its end."""


class Fact(NamedTuple):
    """A line of a card."""

    name: str
    figure: object
    more: str = ""
    """The figure's interval, or a remark."""


def card(
    title: str,
    figure: object,
    words: object = "",
    facts: Iterable[Fact] = (),
    *,
    bar: Html | None = None,
    note: object = "",
    quiet: bool = False,
) -> Html:
    """One card.

    Args:
        title: what it is about.
        figure: the one to remember.
        words: what the figure is, with its interval.
        facts: further figures.
        bar: of the interval.
        note: how far to trust it.
        quiet: whether there is nothing to remember, only why.
    """
    lines = [
        tag(
            "div",
            tag("dt", fact.name),
            tag("dd", fact.figure, tag("small", fact.more) if fact.more else ""),
        )
        for fact in facts
    ]
    return tag(
        "article",
        tag("h3", title),
        tag("p", figure, class_="figure-large"),
        bar or "",
        tag("p", words) if words else "",
        tag("dl", *lines) if lines else "",
        tag("p", note, class_="quiet") if note else "",
        class_="card quiet-card" if quiet else "card",
    )


def range_bar(estimate: Estimate, *, signed: bool = False) -> Html:
    """A scale with the interval and the figure on it; the text beside it has the same content.

    Args:
        estimate: a share in [0, 1], or a difference between shares.
        signed: it is a difference: the scale has zero in its middle.
    """
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return Html("")
    at, low, high = (
        min(1.0, max(0.0, 0.5 + end / (2 * _REACH) if signed else end))
        for end in (estimate.value, estimate.low, estimate.high)
    )
    inner = (tag("span", class_="ends"), tag("span", class_="dot"))
    return tag(
        "span",
        *(tag("span", class_="zero") if signed else "", *inner),
        class_="range-bar",
        style=f"--at:{at:.4f};--from:{low:.4f};--to:{high:.4f}",
        aria_hidden="true",
    )


_AMOUNTS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e4, "thousand"))


def percent(estimate: Estimate) -> str:
    """`61%`; with a decimal where the interval is narrow; `-` without a figure."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:.{_decimals(estimate)}%}"


def percent_range(estimate: Estimate) -> str:
    """`49 to 73%`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    decimals = _decimals(estimate)
    return f"{estimate.low * 100:.{decimals}f} to {estimate.high:.{decimals}%}"


def points(estimate: Estimate) -> str:
    """`+12 points`, of a difference between shares."""
    if estimate.value is None:
        return "-"
    return f"{_signed(estimate.value, _decimals(estimate))} points"


def points_range(estimate: Estimate) -> str:
    """`+8 to +16`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    decimals = _decimals(estimate)
    return f"{_signed(estimate.low, decimals)} to {_signed(estimate.high, decimals)}"


def amount(count: float) -> str:
    """`8,214`, `52 thousand`, `1.3 million`."""
    for size, name in _AMOUNTS:
        if count >= size:
            scaled = count / size * (10 if name == "thousand" else 1)
            return f"{scaled:.{1 if scaled < 10 else 0}f} {name}"
    return f"{count:,.0f}"


def duration(seconds: float) -> str:
    """`28 s`, `2 min 5 s`, `3 h 20 min`, `2 d 4 h`."""
    whole = round(seconds)
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    for (name, size), (smaller, part) in pairwise(units):
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {name}" + (f" {rest} {smaller}" if rest else "")
    return f"{whole} s"


def plural(count: int, noun: str) -> str:
    """`1 problem`, `2,000 problems`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _decimals(estimate: Estimate) -> int:
    """One decimal where whole points would hide the interval."""
    if estimate.low is None or estimate.high is None:
        return 0
    return 1 if estimate.high - estimate.low < 0.03 else 0


def _signed(value: float, decimals: int) -> str:
    """Never `-0`."""
    shown = f"{value * 100:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(shown) == 0 else shown
