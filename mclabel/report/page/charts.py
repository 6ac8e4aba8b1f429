"""Elements of the report's plots: axes, lines, bands and error bars of Plotly specifications.

Colours are names (`c0`, `c1`, ...) that the page resolves by theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "triangle-down")


def layout(title: str, x: str, y: str, **more: Any) -> dict[str, Any]:
    """What all plots have in common."""
    return {
        "title": {"text": title},
        "xaxis": {"title": {"text": x}, **more.pop("xaxis", {})},
        "yaxis": {"title": {"text": y}, **more.pop("yaxis", {})},
        **more,
    }


def line(name: str, number: int, x: Sequence[Any], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A line with markers, distinguished by colour, marker and dash."""
    style = {
        "color": f"c{number % 8}",
        "dash": DASHES[number // 8 % len(DASHES)],
        **more.pop("line", {}),
    }
    marker = {"symbol": MARKERS[number % len(MARKERS)], "size": 7, "color": f"c{number % 8}"}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(x),
        "y": list(y),
        "line": style,
        "marker": marker,
        **more,
    }


def spread(values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> dict[str, Any]:
    """Error bars from an interval."""
    up = [max(0.0, h - v) for v, h in zip(values, high, strict=True)]
    down = [max(0.0, v - b) for v, b in zip(values, low, strict=True)]
    return {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1.5}


def band(
    sizes: Sequence[Any], low: Sequence[float], high: Sequence[float], colour: str, **more: Any
) -> dict[str, Any]:
    """The area between two lines."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*sizes, *reversed(sizes)],
        "y": [*high, *reversed(low)],
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.12,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
        **more,
    }


def size_axis(sizes: Sequence[str]) -> dict[str, Any]:
    """Numbers of samples on a logarithmic axis, each named."""
    return {
        "type": "log",
        "dtick": 0.30103,
        "tickvals": [int(size) for size in sizes],
        "ticktext": list(sizes),
    }


def filled(number: int) -> dict[str, Any]:
    """The filling of bars, distinguished by colour and pattern."""
    shapes = ("", "/", "x", ".")
    return {"color": f"c{number % 8}", "pattern": {"shape": shapes[number % len(shapes)]}}
