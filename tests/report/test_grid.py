"""Tables as Markdown and in the terminal, JSON, and colours that hold on any page."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from rich.console import Console

from mclabel.core.stats.bootstrap import NOTHING, Estimate
from mclabel.show.figures import (
    DARK_PAGE,
    HUES,
    INK,
    LIGHT_PAGE,
    Grid,
    estimate_text,
    markdown,
    number_text,
    rich_table,
)
from mclabel.show.texts import json_text


def test_markdown() -> None:
    grid = Grid(title="T", header=("", "a"), rows=(("x|y", "1"), ("two\nlines", "-")), note="N.")
    assert markdown([grid, Grid(title="U", header=("u",), rows=())]) == (
        "**T**\n\n|  | a |\n| --- | ---: |\n| x\\|y | 1 |\n| two lines | - |\n\nN.\n\n"
        "**U**\n\n| u |\n| --- |\n"
    )


def test_a_terminal_reads_no_markup() -> None:
    grid = Grid(title="[b]T[/b]", header=("[red]h",), rows=(("[x] [.1, .2]",),), note="[i]")
    out = StringIO()
    Console(file=out, width=80).print(rich_table(grid))
    for text in ("[b]T[/b]", "[red]h", "[x] [.1, .2]", "[i]"):
        assert text in out.getvalue()


def test_estimates_as_text() -> None:
    assert estimate_text(Estimate(value=0.664, low=0.6, high=1.0)) == "0.66 [.60, 1.00]"
    assert estimate_text(Estimate(value=-0.1, low=-0.25, high=0.05)) == "-0.10 [-.25, .05]"
    assert estimate_text(Estimate(value=10.0, low=10.06, high=20.0)) == "10.00 [10.06, 20.00]"
    assert number_text(Estimate(value=1495.4, low=1203, high=1801)) == "1,495 [1,203, 1,801]"
    assert estimate_text(NOTHING) == estimate_text(None) == number_text(NOTHING) == "-"


def test_json_keeps_what_figures_mean() -> None:
    text = json_text({"b": [0.1 + 0.2, None, 3, True], "a": Estimate(value=1e-12, low=0, high=2.0)})
    assert json.loads(text) == {
        "b": [0.3, None, 3, True],
        "a": {"value": 1e-12, "low": 0, "high": 2.0},
    }
    assert text.endswith("}\n")
    assert json.loads(json_text([float("nan"), float("-inf")])) == [None, None]


@pytest.mark.parametrize("page", [LIGHT_PAGE, DARK_PAGE])
def test_colours_show_on_light_and_dark_pages(page: str) -> None:
    """Contrast of WCAG 2: 3:1 for lines and marks, 4:1 here for text."""
    assert contrast(INK, page) >= 4
    assert min(contrast(hue, page) for hue in HUES) >= 3
    assert len(set(HUES)) == len(HUES) >= 6


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
