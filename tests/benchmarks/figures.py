"""How benchmarks write figures: as numbers in their last line, and as text before it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

Numbers = list[float | None]
"""Value, low and high; None where there is nothing to measure."""


class Ranged(Protocol):
    """A figure with its interval."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def numbers(figure: Ranged) -> Numbers:
    """Value, low and high, to four digits."""
    return [
        None if one is None or math.isnan(one) else round(float(one), 4)
        for one in (figure.value, figure.low, figure.high)
    ]


def finish(figures: Mapping[str, Any]) -> None:
    """Print figures a row a line, and then all of them as one line of JSON, which is the last."""
    for line in _lines(figures, ""):
        print(line)
    print(json.dumps(figures))


def _lines(figures: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, one in figures.items():
        if isinstance(one, Mapping) and any(isinstance(each, Mapping) for each in one.values()):
            yield f"{indent}{name}"
            yield from _lines(one, f"{indent}  ")
        elif isinstance(one, Mapping):
            row = ", ".join(f"{key} {_text(value)}" for key, value in one.items())
            yield f"{indent}{name}: {row}"
        else:
            yield f"{indent}{name}: {_text(one)}"


def _text(figure: Any) -> str:
    """A number in short; three of them as a value and its interval."""
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"
    if isinstance(figure, list | tuple):
        value, *others = map(_text, figure) if figure else ("",)
        return f"{value} [{', '.join(others)}]" if others else value
    return "-" if figure is None else str(figure)
