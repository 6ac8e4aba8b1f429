"""Layouts of published PRMs, which say how a solution is written for them, and their settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from mclabel.core.settings import Settings
from mclabel.data.boundaries import LINE, PARAGRAPH, SPLITTER_VERSION, find_newline_ends
from mclabel.data.exchange.published import SHEPHERD_TAG

_NUMBERED = re.compile(r"\s*step\s*\d+\s*[:.]", re.IGNORECASE)
Split = Literal["line", "paragraph"]
"""Rules that split a solution into steps for published PRMs. A step is a line that is not blank, or
a paragraph.
"""
OUR_SPLIT = f"line, rules {SPLITTER_VERSION}"
"""Name of mclabel's own rule that splits a solution into steps: by line, with the rules of
`mclabel.data.boundaries`. Runs record it with the version of the rules."""
MAX_CHARS = 100
"""Maximum number of characters of a separator."""
QWEN_STEP = "<extra_0>"
"""Mark after each step in the format of Qwen2.5-Math-PRM."""


class LayoutSettings(Settings):
    """Layout of solutions for a PRM of another format. A field that is null keeps the layout of the
    format's authors.
    """

    separator: Annotated[str, Field(min_length=1, max_length=MAX_CHARS)] | None = None
    """Text after each step, at which the step's score is read; null takes that of the format."""
    numbering: bool | None = None
    """True to put "Step k: " before each step; null means true only for math-shepherd."""
    split: Split | None = None
    """Rule that splits a solution given as one text into steps: by `line` or by `paragraph`; null
    takes that of the format."""
    classes: tuple[str, str] | None = None
    """Good class and bad class: tokens for math-shepherd and rlhflow, class indices or label names
    for trl and qwen. null takes those of the format."""


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
"""Layout of the authors of each published format."""


def merge_layout_settings(format_name: str, overrides: LayoutSettings) -> LayoutSettings:
    """Return the layout of a PRM of a published format.

    Args:
        format_name: name of the format, a key of `LAYOUTS`.
        overrides: settings of this PRM, which take precedence over the layout of the format's
            authors.
    """
    layout = LAYOUTS[format_name].with_changes(**overrides.model_dump(exclude_none=True))
    if layout.split is not None:
        return layout
    return layout.with_changes(split="paragraph" if "\n\n" in (layout.separator or "") else "line")


def split_into_steps(solution: str, split_rule: str) -> list[str]:
    """Split a solution given as one text into steps.

    Args:
        solution: text of the solution.
        split_rule: name of the split rule, a `Split` or `OUR_SPLIT`.
    """
    if split_rule == OUR_SPLIT:
        ends = find_newline_ends(solution)
    else:
        first, last = len(solution) - len(solution.lstrip()), len(solution.rstrip())
        places = (LINE if split_rule == "line" else PARAGRAPH).finditer(solution)
        ends = [place.end() for place in places if first < place.end() < last]
        ends += [len(solution)] if solution else []
    return [solution[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def number_steps(steps: Sequence[str]) -> list[str]:
    """Return steps with "Step k: " before each, unless a step is already numbered."""
    if any(_NUMBERED.match(step) for step in steps):
        return list(steps)
    return [f"Step {number}: {step}" for number, step in enumerate(steps, 1)]
