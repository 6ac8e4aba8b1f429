"""Where careful human graders differ, a rule decides: one field each, strictness by default named.

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

    round_to_gold: bool = True
    """Accept an answer that rounds to a decimal gold: π for 3.14. A short gold that may be exact,
    such as 0.3 or 2.5, accepts only irrational answers so."""
    percent_as_fraction: bool = True
    """Treat 50% as equal to 0.5 and to 1/2."""
    percent_sign_optional: bool = True
    """Treat 50% as equal to 50."""
    degree_sign_optional: bool = True
    """Treat 90° as equal to 90."""
    degrees_as_radians: bool = True
    """Treat 90° as equal to π/2."""
    units_optional: bool = True
    """Treat 5 cm as equal to 5 if only one side has a unit. Two units are converted and must
    agree."""
    base_subscript_optional: bool = True
    """Treat 1010 as equal to 1010 in base 2 if only one side names the base."""
    meridiem_optional: bool = True
    """Treat 4:30 as equal to 4:30 pm if only one side says am or pm."""
    variable_optional: bool = True
    """Treat 5 as equal to x = 5."""
    brackets_optional: bool = True
    """Treat the list 1, 2 as equal to the tuple (1, 2), in this order."""
    vector_as_tuple: bool = True
    """Treat a matrix of one row or column as equal to the tuple of its entries. A row never equals
    a column."""
    ratio_as_fraction: bool = True
    """Treat the ratio 3:5 as equal to the fraction 3/5."""
    ordered_lists: bool = False
    """Compare lists without brackets in order: 1, 2 differs from 2, 1. Tuples always are."""
    ordered_sets: bool = False
    """Compare sets in order: {1, 2} differs from {2, 1}."""
    accept_hedged: bool = False
    """Accept "3 or 4" for 3. If false, all alternatives must be right."""
    ordered_assignments: bool = True
    """Compare assignments and truth values in order: x = 1, y = 2 equals 1, 2 and not 2, 1."""
    decimal_comma: bool = True
    """Read 2,74 as 2.74. At least two digits must follow the comma, or one after a leading 0; 1,234
    is always 1234."""
    approximation_of_gold: bool = True
    """Accept 3.46 for the gold "2√3 ≈ 3.46". If an answer has this form, its exact part is always
    compared."""
    full_precision: Annotated[int, Ge(0), Le(1_000_000)] = 15
    """A decimal with at least so many significant digits equals the number it is rounded from:
    1.4142135623730951 equals √2. 0 compares exactly."""
    grade_guesses: bool = True
    """Grade a completion that marks and asserts no answer by its last number; the reason begins
    with `guess`. If false, its verdict is unknown."""
    relative_tolerance: Annotated[float, Ge(0), Le(1)] = 0.0
    """Accept a number whose relative difference from the gold is at most this. SciBench uses 0.05,
    TheoremQA 0.04."""
    base_is_asked: bool = True
    """Treat 555 in base 10 as different from the equal 4210 in base 5."""
    any_constant: bool = True
    """The name of a constant does not matter: x² + c equals x² + C. The same holds for the k of π/4
    + kπ and the c of f(x) = cx."""
    letters_are_names: bool = True
    """Read capitals in a row as a name, so that ABC differs from ACB. If false, they are a product,
    as xy always is."""
    ignore_case: bool = True
    """Ignore case in words and single letters, but not in formulas."""


DEFAULT_RULES = GradeRules()
