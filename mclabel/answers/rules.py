"""Where careful human graders differ, a rule decides: one field each, strictness by default named.

Everything else is exact: an answer is right when it means what the gold means.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class GradeRules:
    """How lenient a verdict is. Hashable: part of the memo's key."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    round_to_gold: bool = True
    """A gold such as 3.14 is a rounding: what rounds to it at its own precision is right. A gold
    of fewer than two decimals and three digits (0.3, 2.5) takes only irrational answers that
    way, since it is as likely exact. Integers and fractions are always exact."""
    percent_as_fraction: bool = True
    """50% is 0.5 and 1/2."""
    percent_sign_optional: bool = True
    """50% is 50."""
    degree_sign_optional: bool = True
    """90° is 90."""
    degrees_as_radians: bool = True
    """90° is π/2."""
    units_optional: bool = True
    """5 cm is 5 where only one side names a unit. Two units must agree, by conversion."""
    base_subscript_optional: bool = True
    """1010 is 1010 in base 2 where only one side names the base: the digits are compared."""
    meridiem_optional: bool = True
    """4:30 is 4:30 pm where only one side says am or pm."""
    variable_optional: bool = True
    """5 is x = 5, and 2x + 3 is y = 2x + 3."""
    brackets_optional: bool = True
    """1, 2 in that order is (1, 2)."""
    vector_as_tuple: bool = True
    """A column or row matrix is the tuple of its entries; a column is never a row."""
    ratio_as_fraction: bool = True
    """3:5 is 3/5."""
    ordered_lists: bool = False
    """1, 2 without brackets is 2, 1 unless set. Tuples are always ordered, {} sets never."""
    ordered_sets: bool = False
    """{1, 2} is {2, 1} unless set."""
    accept_hedged: bool = False
    """3 is "3 or 4": one right alternative of several is enough. Off, all must be given."""
    ordered_assignments: bool = True
    """x = 1, y = 2 is 1, 2 and not 2, 1, and True, False is not False, True: what a name or a place
    says is part of the answer."""
    decimal_comma: bool = True
    """2,74 is 2.74 beside a single number, where its comma can separate no thousands and no fewer
    than two digits follow; 0,5 too where it is the answer. 1,234 is always 1234, 0,123 never."""
    approximation_of_gold: bool = True
    """3.46 is a gold that says 2√3 ≈ 3.46. Of an answer with an approximation behind it always the
    exact part counts."""
    full_precision: int = 15
    """A decimal of at least so many significant digits is the number that it is a rounding of:
    1.4142135623730951 is √2. 0 holds it to be that decimal."""
    relative_tolerance: float = 0.0
    """A number is right that differs from the gold by no more than this part of it. Benchmarks of
    measured quantities take 0.05 (SciBench), 0.04 (TheoremQA); mathematics takes none."""
    base_is_asked: bool = True
    """555 in base 10 is not 4210 in base 5, though both are one number: the base was asked for."""
    any_constant: bool = True
    """x² + c is x² + C, and x² + 1 + C too: constants of integration have no name of their own.
    Nor has the integer k of π/4 + kπ, or the c of a family f(x) = cx."""
    letters_are_names: bool = True
    """ABC is not ACB, nor HHT THH. Off, letters are always a product; small ones such as xy, mn
    and abc are one in any case."""
    ignore_case: bool = True
    """Words and lone letters compare without case; letters in formulas always with case."""


DEFAULT_RULES = GradeRules()
