"""What exports to and imports from other people's formats share.

In these formats steps are separate texts without their line ends; here they join to the solution.
An exported step loses one closing line break, an imported one but the last gains it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Format = Literal["trl", "math-shepherd", "rlhflow", "prm800k", "processbench"]
FORMATS: tuple[Format, ...] = ("trl", "math-shepherd", "rlhflow", "prm800k", "processbench")
PARQUET: Literal["parquet"] = "parquet"
"""Our own columns in plain Parquet files: an export of tables, not of rows of another format."""

SHEPHERD_TAG = "ки"
"""Stands after every step of Math-Shepherd's inputs, where its labels have `+` or `-`."""

LOSSES: dict[Format, str] = {
    "trl": "labels are booleans: values, counts, intervals, the gold answer, the outcome and ids "
    "are lost; steps without a label, and those after them, are left out",
    "math-shepherd": "labels are + or -: values, counts, intervals, the gold answer, the outcome "
    "and ids are lost; steps without a label, and those after them, are left out",
    "rlhflow": "labels are + or -: values, counts, intervals, the gold answer, the outcome and ids "
    "are lost; steps without a label, and those after them, are left out",
    "prm800k": "ratings are -1, 0 or 1 up to the first error: values, counts, intervals and ids "
    "are lost; what the labels after the first error say is lost",
    "processbench": "one first error a solution: values, counts, intervals and the gold answer "
    "are lost; what the labels after the first error say is lost; solutions without an error "
    "of which some step has no label, or without an outcome, are left out",
}


@dataclass(frozen=True, kw_only=True)
class LabeledTexts:
    """A problem and the steps of a solution, with what another format says of them."""

    problem: str
    steps: tuple[str, ...]
    """Without line ends."""
    ratings: tuple[float | None, ...]
    """0 wrong, 0.5 neutral, 1 sound; None for no label."""
    answer: str = ""
    """The gold answer, empty if the format has none."""
    prediction: str | None = None
    right: bool | None = None
    """The solution's answer is right; None if the format does not say."""
    extra: tuple[tuple[str, str], ...] = ()
    """What else the format holds."""
    id: str = ""
    """Of the solution, unique in its run; empty if the format has none."""
