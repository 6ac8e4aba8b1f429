"""Output of a benchmark's figures: as tables, and as JSON in the last line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

Numbers = list[float | None]
"""Value, low and high of a figure; None if there was nothing to measure."""


class Ranged(Protocol):
    """A figure with its interval."""

    @property
    def value(self) -> float | None: ...
    @property
    def low(self) -> float | None: ...
    @property
    def high(self) -> float | None: ...


def numbers(figure: Ranged) -> Numbers:
    """Return the value, low and high of a figure, rounded to four decimals."""
    return [
        None if bound is None or math.isnan(bound) else round(float(bound), 4)
        for bound in (figure.value, figure.low, figure.high)
    ]


LEGEND = "Brackets: 95% interval of a share or difference; minimum and maximum of repeated speeds."


def finish(figures: Mapping[str, Any]) -> None:
    """Print the figures as tables, and then as one last line of JSON."""
    print(LEGEND)
    for line in _lines("", figures):
        print(line)
    print(json.dumps(figures))


def _lines(title: str, figures: Mapping[str, Any]) -> Iterator[str]:
    """Format the single figures, then the rows of one table, then nested tables."""
    rows = {str(name): value for name, value in figures.items() if isinstance(value, Mapping)}
    flat = {
        name: row
        for name, row in rows.items()
        if title and not any(isinstance(value, Mapping) for value in row.values())
    }
    single = [[str(name), _text(value)] for name, value in figures.items() if str(name) not in rows]
    yield from _aligned([[title, ""], *single] if title and single else single)
    if flat:
        columns = list(dict.fromkeys(key for row in flat.values() for key in row))
        cells = [[_text(row.get(key, "")) for key in columns] for row in flat.values()]
        texts = [[name, *row] for name, row in zip(flat, cells, strict=True)]
        yield from _aligned([[title, *map(str, columns)], *texts])
    for name, nested in rows.items():
        if name not in flat:
            yield from ("", *_lines(f"{title}, {name}" if title else name, nested))


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        yield "  ".join([first.ljust(widths[0]), *cells]).rstrip()


def _text(figure: Any) -> str:
    """Format a number briefly; format three numbers as a value and its interval."""
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"
    if isinstance(figure, list | tuple):
        texts = [*map(_text, figure)]
        if len(texts) == 3 and not isinstance(figure[0], list):
            return f"{texts[0]} [{texts[1]}, {texts[2]}]"
        return "; ".join(texts)
    return "-" if figure is None else str(figure)
