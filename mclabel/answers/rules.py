"""Rules of verdicts where careful human graders differ, or where a data set has its own custom.

Everything else is exact: an answer is right when it means what the gold means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Le


@dataclass(frozen=True, kw_only=True)
class GradeRules:
    """How lenient a verdict is. Hashable: part of the memo's key."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    units_optional: bool = True
    """Treat 5 cm as equal to 5 if only one side has a unit."""
    relative_tolerance: Annotated[float, Ge(0), Le(1)] = 0.0
    """Maximum relative difference of a number from the gold. SciBench uses 0.05, TheoremQA 0.04."""
    grade_guesses: bool = True
    """Grade a completion without a stated answer by its last number. If false, its verdict is
    unknown."""


DEFAULT_RULES = GradeRules()
