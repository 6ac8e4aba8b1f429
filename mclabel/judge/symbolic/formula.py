"""What was read of one side of an equality."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Side:
    """One side of an equality, in the alphabet of the answers' reader of expressions."""

    start: int
    end: int
    """Characters of the step's text."""
    text: str = ""
    decimals: list[str] = field(default_factory=list)
    """Numbers with a decimal point, as written."""
    literal: str | None = None
    """The side where it is one number (with a sign or a percent sign)."""
    units: set[str] = field(default_factory=set)
    operations: int = 0
    has_percent: bool = False
    has_sum: bool = False
    mixed: str | None = None
    """Another way to read a side with a mixed number: as a product, or without the number before
    the fraction, which may belong to the words."""
    vague: bool = False
    """Has a way to be read that is not followed here: false is then not decided."""
    letters: set[str] = field(default_factory=set)
    signs_used: int = 0
