"""What the report's parts are drawn with: the macros of report.html, and figures as texts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.environment import TemplateModule
from markupsafe import Markup, escape

from mclabel.core.stats.bootstrap import Estimate
from mclabel.show.figures import Plot, svg
from mclabel.show.texts import STATIC

MAX_CELL = 2000
"""Characters of a text."""


Html = Markup
"""Markup that is safe to put in a page as it stands."""


def draw(macro: str, **values: object) -> Html:
    """A macro of report.html; texts among its values are bounded and escaped."""
    drawn: Html = getattr(_TEMPLATE, macro)(**values)
    return drawn


def bounded(content: object) -> object:
    """Any text, cut, and with what would hide or reorder it as codes; markup as it stands."""
    if isinstance(content, Html):
        return content
    whole = str(content)
    shown = (c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in whole[:MAX_CELL])
    return "".join(shown) + left_out(whole)


def left_out(whole: str) -> str:
    """How much of a text is left out where it is bounded; empty if nothing is."""
    return f"… ({len(whole) - MAX_CELL:,} more characters)" if len(whole) > MAX_CELL else ""


def ranged(value: float | None, low: float | None, high: float | None, form: str = ".2f") -> Html:
    """A figure and its interval, `-` without any."""
    if value is None or low is None or high is None:
        return Html("-")
    return draw("ranged", value=f"{value:{form}}", low=f"{low:{form}}", high=f"{high:{form}}")


def join(*parts: Html) -> Html:
    """One after the other."""
    return Html("\n").join(parts)


def paragraph(words: object, kind: str = "") -> Html:
    """A paragraph; of kind `quiet` what is only to be looked up."""
    return draw("paragraph", words=words, kind=kind)


def details(summary: str, *parts: Html) -> Html:
    """What opens when it is asked for."""
    return draw("details", summary=summary, parts=parts)


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
    columns = list(zip(*rows, strict=True)) if rows else [[None]] * len(head)
    figures = ["figure" if sum(map(_is_figure, c)) * 2 > len(c) else "word" for c in columns[1:]]
    lines = list(zip_longest(rows, marked, fillvalue=False))
    return draw("table", head=head, kinds=["word", *figures], rows=lines, caption=caption)


def figure(identity: str, plot: Plot, numbers: Html, note: str = "") -> Html:
    """A plot with the numbers in it as a table.

    Args:
        identity: unique in the page.
        plot: with a title.
        numbers: the same as a table.
        note: how to read it.
    """
    drawing = Html(svg(plot, identity))
    return draw("figure", id=identity, plot=plot, drawing=drawing, numbers=numbers, note=note)


def page(title: str, names: str, sections: Sequence[tuple[str, str, Html]]) -> str:
    """A whole page that needs nothing but itself; only this package's own scripts run in it.

    Args:
        title: of its window.
        names: of what it shows.
        sections: id, title and content.
    """
    script = (STATIC / "theme.js").read_text(encoding="utf-8")
    styles = "".join(
        (STATIC / name).read_text(encoding="utf-8")
        for name in ("theme.css", "solution.css", "report/report.css")
    )
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(styles)}'; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    own = {"policy": Html(policy), "styles": Html(styles), "script": Html(script)}
    return draw("page", title=title, names=names, sections=sections, **own)


def _breakable(name: object) -> Html:
    """A name that may go on in the next line after a colon, as scorers' names do."""
    return Html(re.sub(r":(?=\S)", ":<wbr>", escape(bounded(name))))


def _is_figure(cell: object) -> bool:
    if isinstance(cell, str):
        return cell == "" or cell[0] in "0123456789+-.["
    return isinstance(cell, int | float)


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


def _template() -> TemplateModule:
    """The macros that draw the page."""
    environment = Environment(
        loader=FileSystemLoader(STATIC / "report"),
        autoescape=True,
        finalize=bounded,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["breakable"] = _breakable
    environment.tests["figure"] = _is_figure
    return environment.get_template("report.html").module


_TEMPLATE = _template()
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
    bar: object = "",
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
    values = {"bar": bar, "note": note, "quiet": quiet}
    return draw("card", title=title, figure=figure, words=words, facts=list(facts), **values)


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
    return draw("range_bar", at=f"{at:.4f}", low=f"{low:.4f}", high=f"{high:.4f}", signed=signed)


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
    shown = _signed(estimate.value, _decimals(estimate))
    return f"{shown} point{'' if shown in ('+1', '-1') else 's'}"


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
