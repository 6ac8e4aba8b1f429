"""The template environment of the report's page: escaping, formatting of numbers, and plots."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mclabel.core.stats.bootstrap import FEW_PROBLEMS, Estimate
from mclabel.report.page.health import NOTE
from mclabel.show.figures import Plot, render_svg
from mclabel.show.texts import DESCRIBED, SELECTED, STATIC, shorten_answer

MAX_CELL = 2000
"""Maximum characters of a text."""
MAX_ROWS = 40
"""Maximum rows in the table of a plot's numbers."""
MAX_BAR_DIFFERENCE = 0.3
"""Largest difference between shares that a signed bar can show. Larger differences are drawn at
the end of the bar."""


_ASSET_FILES = {
    "styles": ("theme.css", "solution.css", "report/report.css"),
    "script": ("theme.js",),
    "latex": ("vendor/katex/katex.min.js", "latex.js", "report/latex.js"),
}
"""Files of the page's style and scripts. Pages without LaTeX leave out the `latex` files."""
_FENCE = re.compile(r"^[^\S\n]*(?:```|~~~)[\w+-]*[^\S\n]*(?:\n|$)", re.MULTILINE)


def render_page(data: Mapping[str, Any]) -> str:
    """Draw a self-contained HTML page. Its security policy allows only the package's own scripts.

    Args:
        data: result of `collect_report_data`.
    """
    assets = {
        name: Markup("".join((STATIC / file).read_text(encoding="utf-8") for file in files))
        for name, files in _ASSET_FILES.items()
    }
    policy = Markup(
        f"default-src 'none'; script-src '{_compute_csp_hash(assets['script'])}' "
        f"'{_compute_csp_hash(assets['latex'])}'; "
        f"style-src '{_compute_csp_hash(assets['styles'])}'; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        make_template_environment()
        .get_template("report.html")
        .render(data, **assets, policy=policy)
    )


def make_template_environment() -> Environment:
    """Return the template environment with its filters. It shortens and escapes every text."""
    environment = Environment(
        loader=FileSystemLoader(STATIC / "report"),
        extensions=["jinja2.ext.do"],
        autoescape=True,
        finalize=shorten_and_escape_content,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": format_percent,
        "percent_range": format_percent_range,
        "points": format_points,
        "points_range": format_points_range,
        "amount": format_count,
        "duration": format_duration,
        "plural": lambda count, noun: f"{count:,} {noun}{'' if count == 1 else 's'}",
        "shown": format_cell,
        "cut": shorten_answer,
        "differing": select_rows_that_differ_between_runs,
        "numbers": make_plot_table,
        "column_kinds": classify_columns,
        "breakable": lambda name: Markup(
            re.sub(r":(?=\S)", ":<wbr>", escape(shorten_and_escape_content(name)))
        ),
        "scaled": format_bar_position,
        "unfenced": partial(_FENCE.sub, ""),
    }
    environment.tests |= {
        "estimate": lambda content: isinstance(content, Estimate),
        "unclear": lambda estimate: estimate.low is not None and estimate.low <= 0 <= estimate.high,
        "figure": is_number_cell,
    }
    environment.globals |= {
        "svg": lambda plot, identity: Markup(render_svg(plot, identity)),
        "NOTE": NOTE,
        "DESCRIBED": DESCRIBED,
        "SELECTED": SELECTED,
        "FEW_PROBLEMS": FEW_PROBLEMS,
    }
    return environment


def shorten_and_escape_content(content: object) -> object:
    """Cut a text to MAX_CELL characters, with codes for unprintable ones; keep markup unchanged."""
    if isinstance(content, Markup):
        return content
    text = str(content)
    safe = (
        character if character.isprintable() or character in "\n\t" else f"\\u{ord(character):04x}"
        for character in text[:MAX_CELL]
    )
    return "".join(safe) + format_omission_note(text)


def format_omission_note(text: str) -> str:
    """Return a remark on how many characters `shorten_and_escape_content` cuts; empty for none.

    Args:
        text: the whole text.
    """
    return f"… ({len(text) - MAX_CELL:,} more characters)" if len(text) > MAX_CELL else ""


def make_plot_table(plot: Plot) -> list[dict[str, object]]:
    """Return a plot's numbers as a table with a column per series, thinned to MAX_ROWS rows."""
    rows: dict[float, dict[str, object]] = {}
    for series in plot.series:
        for number, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            if series.is_thin or x is None or y is None:
                continue
            row_key, value = (round(y), x) if plot.rows else (x, y)
            name = plot.rows[round(y)] if plot.rows else plot.ticks.get(row_key, row_key)
            ends = (
                {"low": series.low[number], "high": series.high[number]} if len(series.low) else {}
            )
            cell = Estimate(value=value, **ends) if ends else value
            rows.setdefault(row_key, {"": name})[series.name or plot.x_label] = cell
    return [rows[row_key] for row_key in sorted(rows)][:: -(-len(rows) // MAX_ROWS) or 1]


def select_rows_that_differ_between_runs(
    rows: Sequence[Mapping[str, object]],
) -> list[Mapping[str, object]]:
    """Return the rows of a comparison of runs in which not all runs have the same value."""
    return [row for row in rows if len({str(cell) for cell in list(row.values())[1:]}) > 1]


def classify_columns(rows: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return the kind of each column: `figure` for numbers, aligned to the right, else `word`."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        name: "figure"
        if 2 * sum(is_number_cell(row.get(name)) for row in rows) > len(rows)
        else "word"
        for name in names
    }


def is_number_cell(cell: object) -> bool:
    """Return whether a cell is a number, an unknown value, or a text that begins like a number."""
    if isinstance(cell, str):
        return cell == "" or cell[0] in "0123456789+-.["
    return cell is None or isinstance(cell, int | float | Estimate)


def format_cell(cell: object) -> str:
    """Return a cell of a table as text; `-` for an unknown value."""
    if isinstance(cell, float):
        is_small = 0 < abs(cell) < 0.001
        return f"{cell:.2g}" if is_small else f"{cell:,.{0 if abs(cell) >= 1000 else 3}f}"
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell)


def format_bar_position(value: float, *, signed: bool = False) -> str:
    """Return the position on a bar, in [0, 1] as text, of a share or a signed difference.

    Args:
        value: share in [0, 1], or difference.
        signed: True for a difference. 0 is then in the middle, and the ends are
            ±`MAX_BAR_DIFFERENCE`.
    """
    return f"{min(1.0, max(0.0, 0.5 + value / (2 * MAX_BAR_DIFFERENCE) if signed else value)):.4f}"


def format_percent(estimate: Estimate) -> str:
    """Return a share as `61%`, with a decimal if the interval is narrow; `-` if it is unknown."""
    return "-" if estimate.value is None else f"{estimate.value:.{_choose_decimals(estimate)}%}"


def format_percent_range(estimate: Estimate) -> str:
    """Return the confidence interval of a proportion, such as `49 to 73%`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    decimals = _choose_decimals(estimate)
    return f"{estimate.low * 100:.{decimals}f} to {estimate.high:.{decimals}%}"


def format_points(estimate: Estimate) -> str:
    """Return a difference between shares in percentage points, such as `+12 points`."""
    if estimate.value is None:
        return "-"
    difference = _format_signed_points(estimate.value, _choose_decimals(estimate))
    return f"{difference} point{'' if difference in ('+1', '-1') else 's'}"


def format_points_range(estimate: Estimate) -> str:
    """Return the interval of a difference in percentage points, such as `+8 to +16`."""
    if estimate.low is None or estimate.high is None:
        return "-"
    return " to ".join(
        _format_signed_points(bound, _choose_decimals(estimate))
        for bound in (estimate.low, estimate.high)
    )


def format_count(count: float) -> str:
    """Return a count in words, such as `8,214`, `52 thousand` or `1.3 million`."""
    for unit_size, name in (
        (1e12, "trillion"),
        (1e9, "billion"),
        (1e6, "million"),
        (1e4, "thousand"),
    ):
        if count >= unit_size:
            scale = count / unit_size * (10 if name == "thousand" else 1)
            return f"{scale:.{1 if scale < 10 else 0}f} {name}"
    return f"{count:,.0f}"


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units, such as `28 s`, `2 min 5 s` or `2 d 4 h`."""
    whole = round(seconds)
    for (name, unit_size), (smaller, smaller_size) in pairwise(
        (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    ):
        if whole >= unit_size:
            remainder = whole % unit_size // smaller_size
            return f"{whole // unit_size} {name}" + (f" {remainder} {smaller}" if remainder else "")
    return f"{whole} s"


def _choose_decimals(estimate: Estimate) -> int:
    """Return the decimals of a percentage: 1 if its interval is below 3 points wide, else 0."""
    low, high = estimate.low, estimate.high
    return int(low is not None and high is not None and high - low < 0.03)


def _format_signed_points(value: float, decimals: int) -> str:
    """Return a difference in percentage points with its sign; zero has no sign."""
    text = f"{value * 100:+.{decimals}f}"
    return f"{0:.{decimals}f}" if float(text) == 0 else text


def _compute_csp_hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
