"""Where careful human graders differ, a rule decides: one field each, strictness by default named.

Everything else is exact: an answer is right when it means what the gold means.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GradeRules:
    """How lenient a verdict is. Hashable: part of the memo's key."""

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
    ignore_case: bool = True
    """Words and lone letters compare without case; letters in formulas always with case."""


DEFAULT_RULES = GradeRules()
