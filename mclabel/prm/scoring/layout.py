"""Layouts of solutions for other people's PRMs, if a checkpoint departs from its format."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import Settings
from mclabel.data.boundaries import LINE, PARAGRAPH, SPLITTER_VERSION, newline_ends
from mclabel.data.exchange.published import SHEPHERD_TAG

_NUMBERED = re.compile(r"\s*step\s*\d+\s*[:.]", re.IGNORECASE)
Split = Literal["line", "paragraph"]
"""Splits with which other people's PRMs were trained: every line that is not blank, or every
paragraph.
"""
OUR_SPLIT = f"line, rules {SPLITTER_VERSION}"
"""Split of labels made by mclabel: by line with the rules of `mclabel.data.boundaries`; a run
records it.
"""
MAX_CHARS = 100
QWEN_STEP = "<extra_0>"


class LayoutSettings(Settings):
    """The way that a PRM of another format reads a solution. A field that is null is as the
    format's authors have it.
    """

    separator: Annotated[str, Field(min_length=1, max_length=MAX_CHARS)] | None = None
    """Text after each step, where its score is read; null: as the format has it."""
    numbering: bool | None = None
    """Put "Step k: " before steps; null: for math-shepherd only."""
    split: Split | None = None
    """Split of a solution that is given as one text; null: that of the format."""
    classes: tuple[str, str] | None = None
    """Good and bad class: tokens for math-shepherd and rlhflow, indices or label names for trl
    and qwen."""


LAYOUTS: Mapping[str, LayoutSettings] = {
    "trl": LayoutSettings(separator="\n", numbering=False, classes=("1", "0")),
    "math-shepherd": LayoutSettings(
        separator=SHEPHERD_TAG, numbering=True, split="line", classes=("+", "-")
    ),
    "rlhflow": LayoutSettings(numbering=False, split="paragraph", classes=("+", "-")),
    "qwen": LayoutSettings(
        separator=QWEN_STEP, numbering=False, split="paragraph", classes=("1", "0")
    ),
}
"""The layout of the authors of each format but our own."""


def layout_of(form: str, own: LayoutSettings) -> LayoutSettings:
    """The layout of a PRM of another format: its own where it is set, else that of the authors."""
    layout = LAYOUTS[form].changed(**own.model_dump(exclude_none=True))
    if layout.split is not None:
        return layout
    return layout.changed(split="paragraph" if "\n\n" in (layout.separator or "") else "line")


def split_text(solution: str, how: str) -> list[str]:
    """The steps of a solution given as one text.

    Args:
        solution: the text.
        how: a `Split`, or `OUR_SPLIT`.
    """
    if how == OUR_SPLIT:
        ends = newline_ends(solution)
    else:
        first, last = len(solution) - len(solution.lstrip()), len(solution.rstrip())
        places = (LINE if how == "line" else PARAGRAPH).finditer(solution)
        ends = [place.end() for place in places if first < place.end() < last]
        ends += [len(solution)] if solution else []
    return [solution[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def numbered(steps: Sequence[str]) -> list[str]:
    """Steps with "Step k: " before each, unless one of them carries a number."""
    if any(_NUMBERED.match(step) for step in steps):
        return list(steps)
    return [f"Step {number}: {step}" for number, step in enumerate(steps, 1)]
