"""Plots, and tables for the terminal and for Markdown.

Plots are readable on light and dark pages. The same input always gives the same bytes. Names of
series and rows can come from untrusted sources. So they are shown as plain text of limited length,
with visible codes in place of unprintable characters.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from mclabel.core.stats.bootstrap import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    Column = Sequence[float | None] | NDArray[np.float64]


TEXT_COLOUR = "#7a7a7a"
"""Colour of text and axes in files. In a page, the theme's text colour replaces it."""
SERIES_COLOURS = ("#2f81d8", "#c9700c", "#2a9461", "#c04fa0", "#8a6fd6", "#a08016")
"""Colours of series. Their contrast is at least 3:1 on a white and on a dark page. TEXT_COLOUR is
the only other colour."""
LIGHT_PAGE, DARK_PAGE = "#ffffff", "#0d1117"
"""Background colours of pages, against which the contrast is measured."""
BAND_ALPHA = 0.22
"""Opacity of the area that shows intervals."""
MARKERS = "osD^vP*X"
"""Markers of series, as matplotlib names them."""
DASHES = ("-", "--", ":", "-.")
"""Line styles of series, as matplotlib names them."""
FILL_OPACITIES = (0.85, 0.4, 0.65, 0.2)
"""Opacities of the bars' fill, used in turn by the series of a plot, so that neighbouring bars can
also be told apart without colours."""
WIDTH = 10.5
"""Width of a plot in a file, in inches. An inch is 72 units of an SVG drawing."""
PAGE_WIDTH = 5.4
"""Maximum width of a plot in a page, in inches. Its text is still readable on narrow screens."""
MAX_NAME = 60
"""Maximum characters of a name."""
MAX_WIDTH = 100
"""Maximum characters in a line of a table on the terminal."""
MAX_TICKS = 40
"""Maximum number of ticks on the x axis that have a label. If there are more ticks, some numeric
ticks get no label."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """A series of points with one name and one colour."""

    name: str
    """Name in the legend; an empty name leaves the series out of the legend."""
    x: Column
    y: Column
    low: Column = ()
    """Lower ends of the intervals of `y`, or of `x` in a plot with rows; empty for no intervals."""
    high: Column = ()
    """Upper ends of the same intervals."""
    kind: Literal["line", "points", "bars"] = "line"
    hue: int | None = None
    """Number from 0 that selects colour, marker and line style. None selects TEXT_COLOUR and no
    markers."""
    dash: str = ""
    """Line style of matplotlib; empty for the style that `hue` selects."""
    is_band: bool = False
    """True draws the intervals as an area instead of error bars."""
    is_thin: bool = False
    """True draws a thin line without markers."""
    is_hollow: bool = False
    """True draws markers without a fill."""


@dataclass(frozen=True, kw_only=True)
class Plot:
    """Series on two axes."""

    title: str
    x_label: str
    y_label: str = ""
    series: Sequence[Series]
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    ticks: Mapping[float, str] = field(default_factory=dict)
    """Names of values on the x axis; empty for plain numbers."""
    rows: Sequence[str] = ()
    """Names of the values 0, 1, ... on the y axis, from the top; empty for plain numbers."""
    log: int = 0
    """Base of a logarithmic x axis; 0 for a linear axis."""
    is_percent: bool = False
    """True shows the values of the y axis, which are shares in [0, 1], as percent."""
    is_stacked: bool = False
    """True stacks the bars of all series; False draws them side by side."""
    legend_title: str = ""
    below: Plot | None = None
    """Second, lower plot on the same x axis; None for none."""
    size: tuple[float, float] = (WIDTH, 4.4)
    """Width and height in inches, without the legend."""


def compute_plot_height(num_rows: int, num_groups: int = 1) -> float:
    """Return the height, in inches, of a plot with rows of `num_groups` points each."""
    return 0.9 + max(3, num_rows) * max(0.3, 0.14 * num_groups)


def save_plot(plot: Plot, stem: Path) -> None:
    """Write a plot with its title to `stem`.png and `stem`.svg. The files contain no date."""
    with apply_plot_style():
        figure = _make_figure(plot)
        figure.axes[0].set_title(make_name_printable(plot.title), loc="left")
        save_figure(figure, stem.with_suffix(".png"))
        figure.savefig(stem.with_suffix(".svg"), metadata={"Date": None})


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file; the same figure always gives the same bytes."""
    figure.savefig(path, dpi=130, metadata={"Software": None})


def render_svg(plot: Plot, identity: str) -> str:
    """Return a plot as an SVG element for a page, in the page's colours and font, without title.

    Args:
        plot: plot to draw.
        identity: text that is unique in the page. It makes the ids in the element unique.
    """
    out = io.StringIO()
    with apply_plot_style(identity):
        _make_figure(replace(plot, size=(min(PAGE_WIDTH, plot.size[0]), plot.size[1]))).savefig(
            out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
    root = ElementTree.fromstring(out.getvalue())
    root.remove(root[0])  # a style element, which would apply to the whole page
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]
        attributes = {key.rpartition("}")[2]: value for key, value in node.attrib.items()}
        if node.tag in ("g", "svg"):  # these ids are the same in all plots, and are not used
            attributes.pop("id", None)
        for key in ("d", "style", "x", "y") & attributes.keys():
            attributes[key] = _clean_svg_attribute(attributes[key])
        node.attrib = {key: attributes[key] for key in sorted(attributes)}
        node.tail = None
        node.text = node.text if node.tag == "text" else None
    label = f"Plot: {make_name_printable(plot.title)}"
    root.attrib = {"viewBox": root.attrib["viewBox"], "role": "img", "aria-label": label}
    root.set("stroke-linejoin", "round")
    return ElementTree.tostring(root, encoding="unicode")


def make_name_printable(name: str, max_characters: int = MAX_NAME) -> str:
    """Make a name safe to show.

    If a name has more than `max_characters` characters, … replaces its middle. Unprintable
    characters are escaped.
    """
    if len(name) > max_characters:
        name = f"{name[: max_characters - 20]}…{name[-19:]}"
    printable = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}" for character in name
    )
    # Matplotlib leaves out names that begin with an underscore.
    return f" {printable}" if printable.startswith("_") else printable


@contextmanager
def apply_plot_style(salt: str = "") -> Iterator[None]:
    """Draw figures without a background, and with a text colour that is readable on any page.

    Args:
        salt: text that makes the ids in an SVG differ from the ids in other SVGs.
    """
    import matplotlib

    settings: dict[Any, Any] = {
        "savefig.transparent": True,
        "svg.hashsalt": f"mclabel{salt}",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": TEXT_COLOUR,
        "grid.alpha": 0.2,
        "legend.frameon": False,
        "font.size": 11,
    }
    coloured_settings = ("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor")
    settings |= dict.fromkeys(
        (*coloured_settings, "xtick.color", "ytick.color", "legend.labelcolor"), TEXT_COLOUR
    )
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Names may be in any script, and a page shows them in its own font.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def draw_plot(axes: Axes, plot: Plot) -> tuple[list[Any], list[str]]:
    """Draw a plot without its title and its legend. Call this function within `apply_plot_style`.

    Returns:
        The handles and the names for the legend, in the same order.
    """
    bars = [series for series in plot.series if series.kind == "bars"]
    lines = [series for series in plot.series if series.kind != "bars"]
    handles = [_draw_line(axes, series, along_x=bool(plot.rows)) for series in lines]
    handles += _draw_bars(axes, bars, is_stacked=plot.is_stacked)
    _set_up_axes(axes, plot)
    series_and_handles = zip((*lines, *bars), handles, strict=True)
    named_handles = [
        (handle, make_name_printable(series.name))
        for series, handle in series_and_handles
        if series.name
    ]
    return [handle for handle, _ in named_handles], [name for _, name in named_handles]


def _draw_line(axes: Axes, series: Series, *, along_x: bool) -> Any:
    x, y, low, high = (
        np.array(column, dtype=np.float64)
        for column in (series.x, series.y, series.low, series.high)
    )
    number = series.hue or 0
    colour = TEXT_COLOUR if series.hue is None else SERIES_COLOURS[number % len(SERIES_COLOURS)]
    measured = x if along_x else y
    error_bars = None
    if series.is_band:
        axes.fill_between(x, low, high, color=colour, alpha=BAND_ALPHA, linewidth=0)
    elif len(low):
        error_bars = [np.maximum(measured - low, 0), np.maximum(high - measured, 0)]
    dash = series.dash or DASHES[number // len(SERIES_COLOURS) % len(DASHES)]
    has_marker = (
        series.hue is not None and not series.is_thin and (len(x) <= 60 or series.kind != "line")
    )
    return axes.errorbar(
        x,
        y,
        xerr=error_bars if along_x else None,
        yerr=None if along_x else error_bars,
        linestyle="none" if series.kind == "points" else dash,
        marker=MARKERS[number % len(MARKERS)] if has_marker else None,
        markersize=5,
        color=colour,
        linewidth=0.8 if series.is_thin else 1.7,
        elinewidth=1.3,
        capsize=2,
    )


def _draw_bars(axes: Axes, bars: Sequence[Series], *, is_stacked: bool) -> list[Any]:
    """Draw the bars of all series, stacked or side by side; return one handle for each series."""
    drawn: list[Any] = []
    base = np.zeros(len(bars[0].x) if bars else 0)
    for number, series in enumerate(bars):
        x, y = (np.array(column, dtype=np.float64) for column in (series.x, series.y))
        step = float(np.diff(x).min()) if len(x) > 1 else 1.0
        width = 0.84 * step / (1 if is_stacked else len(bars))
        shift = 0.0 if is_stacked else (number - (len(bars) - 1) / 2) * width
        hue = series.hue or 0
        colour, fill = (
            SERIES_COLOURS[hue % len(SERIES_COLOURS)],
            FILL_OPACITIES[hue % len(FILL_OPACITIES)],
        )
        drawn.append(
            axes.bar(x + shift, y, width, base, facecolor=(colour, fill), edgecolor=colour)
        )
        base = base + y if is_stacked else base
    return drawn


def _set_up_axes(axes: Axes, plot: Plot) -> None:
    from matplotlib import ticker

    if plot.log:
        axes.set_xscale("log", base=plot.log)
        axes.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ticker.EngFormatter(sep=""))
        axes.xaxis.set_minor_locator(ticker.NullLocator())
    elif all(isinstance(x, int) for series in plot.series for x in series.x):
        axes.xaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True))
    if plot.ticks:
        label_interval = -(-len(plot.ticks) // MAX_TICKS)
        ticks = {
            tick: make_name_printable(name, 24)
            for number, (tick, name) in enumerate(plot.ticks.items())
            if number % label_interval == 0 or not name.isdigit()
        }
        is_long = len(ticks) * max(map(len, ticks.values())) > 130
        axes.set_xticks(list(ticks), list(ticks.values()))
        if is_long:
            axes.tick_params("x", rotation=90, labelsize=8)
    if plot.rows:
        axes.set_yticks(
            range(len(plot.rows)), [make_name_printable(name, 44) for name in plot.rows]
        )
        axes.set_ylim(len(plot.rows) - 0.4, -0.6)
    if plot.is_percent:
        axes.yaxis.set_major_formatter(lambda share, _: f"{round(100 * share, 6):g}%")
    if plot.x_range:
        axes.set_xlim(plot.x_range)
    if plot.y_range:
        axes.set_ylim(plot.y_range)
    axes.set(xlabel=plot.x_label, ylabel=plot.y_label)


def _make_figure(plot: Plot) -> Figure:
    from matplotlib.figure import Figure

    names = [make_name_printable(series.name) for series in plot.series if series.name]
    width, height = plot.size
    num_columns = max(1, min(len(names), int(width * 11 / (8 + max(map(len, names), default=0)))))
    height += 0.2 * (-(-len(names) // num_columns) + plot.legend_title.count("\n"))
    figure = Figure(figsize=(width, height), layout="constrained")
    if plot.below is None:
        handles, names = draw_plot(figure.subplots(), plot)
    else:
        upper, lower = figure.subplots(2, 1, height_ratios=[4, 1], sharex=True)
        handles, names = draw_plot(upper, replace(plot, x_label=""))
        draw_plot(lower, plot.below)
    if handles:
        figure.legend(
            handles,
            names,
            loc="outside lower left",
            ncols=num_columns,
            fontsize=10,
            title=plot.legend_title or None,
            title_fontsize=10,
            alignment="left",
        )
    return figure


def _clean_svg_attribute(content: str) -> str:
    """Shorten the numbers in an SVG attribute, and replace its font and colour by the page's."""
    content = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(content.split()))
    content = re.sub(r"font-family: [^;]*;? ?", "", content)
    return content.replace(TEXT_COLOUR, "currentColor")


_LEADING_ZERO = re.compile(r"(?<![\d.])0(?=\.)")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table of texts."""

    title: str
    header: tuple[str, ...]
    """Titles of the columns. The first column contains the names of the rows."""
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    """Remark below the table; empty for none."""
    conclusion: str = ""
    """Conclusion from the table, in one or two sentences above it; empty for none."""


def render_rich_table(grid: Grid) -> Group:
    """Draw the conclusion and the table for a terminal, without interpreting markup in the texts.

    If the table is too wide, each interval moves below its value. If it is still too wide, rows and
    columns are swapped.
    """
    header, *columns = zip(grid.header, *grid.rows, strict=True)
    rows_with_line_breaks = tuple(
        tuple(cell.replace(" [", "\n[") for cell in row) for row in grid.rows
    )
    layouts = (
        grid,
        replace(grid, rows=rows_with_line_breaks),
        replace(grid, header=header, rows=tuple(columns)),
    )
    fitting = (layout for layout in layouts if _compute_table_width(layout) <= MAX_WIDTH)
    grid = next(fitting, min(layouts, key=_compute_table_width))
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, cells in enumerate(zip(grid.header, *grid.rows, strict=True)):
        is_name = number == 0
        table.add_column(
            Text(cells[0]),
            justify="left" if is_name else "right",
            overflow="fold",
            min_width=None if is_name else _count_longest_line(*cells[1:]),
        )
    for row in grid.rows:
        table.add_row(*map(Text, row))
    heading = Text.assemble(
        *([f"{grid.conclusion}\n"] if grid.conclusion else []), (grid.title, "italic")
    )
    return Group(heading, table, *([Text(grid.note, style="dim")] if grid.note else []))


def _compute_table_width(grid: Grid) -> int:
    """Return the number of characters in a line of the table, with the header wrapped at spaces."""
    columns = zip(grid.header, *grid.rows, strict=True)
    return 2 + sum(2 + _count_longest_line(*name.split(), *cells) for name, *cells in columns)


def _count_longest_line(*cells: str) -> int:
    return max((len(line) for cell in cells for line in cell.split("\n")), default=0)


def render_markdown(grids: Sequence[Grid]) -> str:
    """Return the tables as GitHub Markdown, separated by blank lines."""
    return "\n".join(map(_format_markdown_table, grids))


def format_estimate(estimate: Estimate | None) -> str:
    """Return an estimate as text, such as `0.66 [.60, .72]`; `-` if it has no value."""
    if estimate is None or estimate.value is None:
        return "-"
    low, high = (_LEADING_ZERO.sub("", f"{bound:.2f}") for bound in (estimate.low, estimate.high))
    return f"{estimate.value:.2f} [{low}, {high}]"


def format_whole_estimate(estimate: Estimate) -> str:
    """Return an estimate in whole numbers, such as `1,495 [1,203, 1,801]`; `-` for no value."""
    if estimate.value is None:
        return "-"
    return f"{estimate.value:,.0f} [{estimate.low:,.0f}, {estimate.high:,.0f}]"


def describe_share(estimate: Estimate) -> str:
    """Return a share in words, such as `61% (36 to 88%)`; `an unknown share` if it has no value."""
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return "an unknown share"
    return f"{estimate.value:.0%} ({100 * estimate.low:.0f} to {estimate.high:.0%})"


def _format_markdown_table(grid: Grid) -> str:
    """Return one table as GitHub Markdown, with conclusion and title above and the note below."""
    rule = ["---", *["---:"] * (len(grid.header) - 1)]
    rows = [
        [(" ".join(text.replace("|", "\\|").splitlines())) for text in row]
        for row in (grid.header, *grid.rows)
    ]
    lines = [grid.conclusion, ""] if grid.conclusion else []
    lines += [f"**{grid.title}**", ""]
    lines += ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    lines += ["", grid.note] if grid.note else []
    return "\n".join(lines) + "\n"
