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
    """Accept an answer that rounds to a decimal gold at the gold's precision: π for 3.14. To a gold
    that may be exact (0.3, 2.5) only irrational answers are rounded. Golds that are integers or
    fractions are compared exactly."""
    percent_as_fraction: bool = True
    """Treat 50% as equal to 0.5 and to 1/2."""
    percent_sign_optional: bool = True
    """Treat 50% as equal to 50."""
    degree_sign_optional: bool = True
    """Treat 90° as equal to 90."""
    degrees_as_radians: bool = True
    """Treat 90° as equal to π/2."""
    units_optional: bool = True
    """Treat 5 cm as equal to 5 if only the answer or only the gold has a unit. If both have one,
    they are converted and must agree."""
    base_subscript_optional: bool = True
    """Treat 1010 as equal to 1010 in base 2 if only the answer or only the gold names the base: the
    digits are compared."""
    meridiem_optional: bool = True
    """Treat 4:30 as equal to 4:30 pm if only the answer or only the gold says am or pm."""
    variable_optional: bool = True
    """Treat 5 as equal to x = 5, and 2x + 3 as equal to y = 2x + 3."""
    brackets_optional: bool = True
    """Treat the list 1, 2 without brackets as equal to the tuple (1, 2), in the same order."""
    vector_as_tuple: bool = True
    """Treat a matrix of one column or one row as equal to the tuple of its entries. A column is
    never equal to a row."""
    ratio_as_fraction: bool = True
    """Treat the ratio 3:5 as equal to the fraction 3/5."""
    ordered_lists: bool = False
    """Compare lists without brackets in order, so that 1, 2 differs from 2, 1. Tuples are always
    compared in order; sets in {} only with `ordered_sets`."""
    ordered_sets: bool = False
    """Compare sets in {} in order, so that {1, 2} differs from {2, 1}."""
    accept_hedged: bool = False
    """Accept "3 or 4" for 3: one right alternative among several is enough. If false, all
    alternatives must be right."""
    ordered_assignments: bool = True
    """Compare assignments and truth values in order: x = 1, y = 2 equals 1, 2 and not 2, 1, and
    True, False differs from False, True."""
    decimal_comma: bool = True
    """Read 2,74 as 2.74 when it is compared to a single number, because its comma cannot separate
    thousands. At least two digits must follow the comma, or one in an answer that begins with 0:
    0,5 is 0.5. 1,234 is always 1234."""
    approximation_of_gold: bool = True
    """Accept 3.46 for a gold such as "2√3 ≈ 3.46". If an answer has this form, its exact part
    is compared, also when this is false."""
    full_precision: Annotated[int, Ge(0), Le(1_000_000)] = 15
    """A decimal with at least this many significant digits equals the number that it is rounded
    from: 1.4142135623730951 equals √2. 0 compares every decimal exactly."""
    grade_guesses: bool = True
    """Grade a completion that marks and asserts nothing by its last number. If false, its verdict
    is unknown. The reason of the verdict begins with `guess`."""
    relative_tolerance: Annotated[float, Ge(0), Le(1)] = 0.0
    """Accept a number whose difference from the gold is at most this fraction of the gold. 0
    accepts none. SciBench uses 0.05 and TheoremQA 0.04, for measured quantities."""
    base_is_asked: bool = True
    """Treat 555 in base 10 as different from 4210 in base 5, although they are the same number,
    because the problem asks for a base."""
    any_constant: bool = True
    """Treat x² + c and x² + 1 + C as equal to x² + C: the name of an integration constant does not
    matter. The same holds for the integer k in π/4 + kπ and for the c in a family f(x) = cx."""
    letters_are_names: bool = True
    """Read capital letters in a row as a name, so that ABC differs from ACB and HHT from THH. If
    false, they are read as a product. Lower-case letters such as xy, mn and abc are always a
    product."""
    ignore_case: bool = True
    """Ignore case in words and single letters. Case always matters for letters in formulas."""


DEFAULT_RULES = GradeRules()
