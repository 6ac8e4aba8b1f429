"""Tables as Markdown and in the terminal, JSON, and colours that are legible on any page."""

from __future__ import annotations

import io
import json
from collections.abc import Callable

import pytest
from rich.console import Console

from mclabel.core.stats.bootstrap import NOTHING, Estimate
from mclabel.show.figures import (
    MAX_WIDTH,
    Grid,
    format_estimate,
    format_whole_estimate,
    render_markdown,
    render_rich_table,
)
from mclabel.show.texts import format_json


def test_markdown() -> None:
    grid = Grid(title="T", header=("", "a"), rows=(("x|y", "1"), ("two\nlines", "-")), note="N.")
    assert render_markdown([grid, Grid(title="U", header=("u",), rows=())]) == (
        "**T**\n\n|  | a |\n| --- | ---: |\n| x\\|y | 1 |\n| two lines | - |\n\nN.\n\n"
        "**U**\n\n| u |\n| --- |\n"
    )


def test_wide_tables_fit_the_terminal() -> None:
    def draw_grid(num_columns: int) -> list[str]:
        names = tuple(f"measure {number}" for number in range(num_columns))
        grid = Grid(
            title="T",
            header=("", *names),
            rows=(("all", *(("0.66 [.60, .72]",) * num_columns)),),
            conclusion="So it is.",
        )
        console = Console(width=MAX_WIDTH, file=io.StringIO())
        console.print(render_rich_table(grid))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert lines[0] == "So it is." and max(map(len, lines)) <= MAX_WIDTH
        return [" ".join(line.split()) for line in lines]

    assert "all 0.66 [.60, .72] 0.66 [.60, .72]" in draw_grid(2)
    assert "all" + " 0.66" * 7 in draw_grid(7) and "[.60, .72] " * 6 + "[.60, .72]" in draw_grid(7)
    assert {"measure 0 0.66 [.60, .72]", "measure 11 0.66 [.60, .72]"} <= set(draw_grid(12))


@pytest.mark.parametrize(
    ("show", "estimate", "text"),
    [
        (format_estimate, Estimate(value=0.664, low=0.6, high=1.0), "0.66 [.60, 1.00]"),
        (format_estimate, Estimate(value=-0.1, low=-0.25, high=0.05), "-0.10 [-.25, .05]"),
        (format_estimate, Estimate(value=10.0, low=10.06, high=20.0), "10.00 [10.06, 20.00]"),
        (format_estimate, NOTHING, "-"),
        (format_estimate, None, "-"),
        (
            format_whole_estimate,
            Estimate(value=1495.4, low=1203, high=1801),
            "1,495 [1,203, 1,801]",
        ),
        (format_whole_estimate, NOTHING, "-"),
    ],
)
def test_estimates_as_text(
    show: Callable[[Estimate | None], str], estimate: Estimate | None, text: str
) -> None:
    assert show(estimate) == text


def test_json_keeps_what_figures_mean() -> None:
    text = format_json(
        {
            "b": [0.1 + 0.2, None, 3, True, float("nan"), float("-inf")],
            "a": Estimate(value=1e-12, low=0, high=2.0),
        }
    )
    assert json.loads(text) == {
        "b": [0.3, None, 3, True, None, None],
        "a": {"value": 1e-12, "low": 0, "high": 2.0},
    }
    assert text.endswith("}\n")
