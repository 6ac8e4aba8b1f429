"""The template environment of the report's page: escaping, figures as texts, plots."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mclabel.core.stats.bootstrap import FEW_PROBLEMS, Estimate
from mclabel.report.page.health import NOTE
from mclabel.show.figures import Plot, svg
from mclabel.show.texts import DESCRIBED, SELECTED, STATIC, cut

MAX_CELL = 2000
"""Characters of a text."""
MAX_ROWS = 40
"""Rows of a table of the figures in a plot."""
REACH = 0.3
"""Largest difference that a signed bar can show; what is beyond lies at its end."""


def page(data: Mapping[str, Any]) -> str:
    """Draw a whole page that needs nothing but itself; only the package's own script runs in it.

    Args:
        data: as `report_data` gives it.
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
    own = {"policy": Markup(policy), "styles": Markup(styles), "script": Markup(script)}
    return environment().get_template("report.html").render(data, **own)


def environment() -> Environment:
    """The templates with their filters; every text is bounded, made visible and escaped."""
    made = Environment(
        loader=FileSystemLoader(STATIC / "report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        finalize=bounded,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (percent, percent_range, points, points_range, amount, duration, plural)
    filters = (*texts, shown, cut, differing, numbers, column_kinds, breakable, scaled)
    made.filters |= {function.__name__: function for function in filters}
    made.tests |= {
        "estimate": lambda content: isinstance(content, Estimate),
        "unclear": lambda e: e.low is not None and e.low <= 0 <= e.high,
        "figure": is_figure,
    }
    made.globals |= {
        "svg": lambda plot, identity: Markup(svg(plot, identity)),
        "NOTE": NOTE,
        "DESCRIBED": DESCRIBED,
        "SELECTED": SELECTED,
        "FEW_PROBLEMS": FEW_PROBLEMS,
    }
    return made


def bounded(content: object) -> object:
    """Any text, cut, and with what would hide or reorder it as codes; markup as it stands."""
    if isinstance(content, Markup):
        return content
    whole = str(content)
    safe = (c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in whole[:MAX_CELL])
    return "".join(safe) + left_out(whole)


def left_out(whole: str) -> str:
    """Return how much of a text is left out where it is bounded; empty if nothing is."""
    return f"… ({len(whole) - MAX_CELL:,} more characters)" if len(whole) > MAX_CELL else ""


def breakable(name: object) -> Markup:
    """A name that may go on in the next line after a colon, as scorers' names do."""
    return Markup(re.sub(r":(?=\S)", ":<wbr>", escape(bounded(name))))


def numbers(plot: Plot) -> list[dict[str, object]]:
    """The figures in a plot as rows of a table, a column for each series; of many rows, some."""
    rows: dict[float, dict[str, object]] = {}
    for series in plot.series:
        for number, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            if series.is_thin or x is None or y is None:
                continue
            place, value = (round(y), x) if plot.rows else (x, y)
            name = plot.rows[round(y)] if plot.rows else plot.ticks.get(place, place)
            ends = (
                {"low": series.low[number], "high": series.high[number]} if len(series.low) else {}
            )
            cell = Estimate(value=value, **ends) if ends else value
            rows.setdefault(place, {"": name})[series.name or plot.x_label] = cell
    return [rows[place] for place in sorted(rows)][:: -(-len(rows) // MAX_ROWS) or 1]


def differing(rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Rows that compare runs in which the runs differ."""
    return [row for row in rows if len({str(cell) for cell in list(row.values())[1:]}) > 1]


def column_kinds(rows: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """`figure` or `word` for each column: figures are aligned to the right."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: "figure" if 2 * sum(is_figure(r.get(name)) for r in rows) > len(rows) else "word"
        for name in names
    }


def is_figure(cell: object) -> bool:
    """Return whether a cell holds a number, or a text that begins as one."""
    if isinstance(cell, str):
        return cell == "" or cell[0] in "0123456789+-.["
    return cell is None or isinstance(cell, int | float | Estimate)


def shown(cell: object) -> str:
    """A cell of a table as text; `-` for what is not known."""
    if isinstance(cell, float):
        small = 0 < abs(cell) < 0.001
        return f"{cell:.2g}" if small else f"{cell:,.{0 if abs(cell) >= 1000 else 3}f}"
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def scaled(value: float, *, signed: bool = False) -> str:
    """The place of a share, or of a difference between shares, on a bar from 0 to 1."""
    return f"{min(1.0, max(0.0, 0.5 + value / (2 * REACH) if signed else value)):.4f}"


def percent(estimate: Estimate) -> str:
    """`61%`; with a decimal where the interval is narrow; `-` without a figure."""
    return "-" if estimate.value is None else f"{estimate.value:.{_decimals(estimate)}%}"


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
    difference = _signed(estimate.value, _decimals(estimate))
    return f"{difference} point{'' if difference in ('+1', '-1') else 's'}"


def points_range(estimate: Estimate) -> str:
    """`+8 to +16`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return " to ".join(_signed(end, _decimals(estimate)) for end in (estimate.low, estimate.high))


def amount(count: float) -> str:
    """`8,214`, `52 thousand`, `1.3 million`."""
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"), (1e4, "thousand")):
        if count >= size:
            scale = count / size * (10 if name == "thousand" else 1)
            return f"{scale:.{1 if scale < 10 else 0}f} {name}"
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
    low, high = estimate.low, estimate.high
    return int(low is not None and high is not None and high - low < 0.03)


def _signed(value: float, decimals: int) -> str:
    """Never `-0`."""
    text = f"{value * 100:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(text) == 0 else text


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
