"""Decides whether two sides of an equality are equal, exactly or within rounding.

The answer checker's exact arithmetic (`mclabel.answers`) computes the values and limits the work.
An equality counts as false only if it is certainly false.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from mclabel.answers.effort import TooMuchWork, set_work_limit
from mclabel.answers.reading.expression import read_expression
from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.sampling import evaluate_as_real
from mclabel.judge.symbolic.lexing import Side
from mclabel.judge.symbolic.vocabulary import CONVERSIONS

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_FIRST_NUMBER = re.compile(rf"[-(]{{0,2}}({_NUMBER})")
_LAST_NUMBER = re.compile(rf"(?<![0-9.])({_NUMBER})\)?$")
_BINARY_MINUS = re.compile(r"(?<=[0-9)}%!])-")
_FRACTION = re.compile(r"\(?(?:[0-9]+/[0-9]+|\\frac\{[0-9]+\}\{[0-9]+\})\)?")
_SURELY_A_CONVERSION = 7
"""Smallest factor between two sides that counts as a conversion of units even if one side has no
unit."""
_MAX_UNITS_OF_WORK = 2_000
"""Maximum work of the exact arithmetic for one side, in the units of `mclabel.answers`."""
_MAX_SHOWN = 40
"""Maximum number of digits of a value in a reason."""
_about = Fraction(1, 50)
"""Largest relative difference of two sides that "about equal" allows if the right side is a
formula."""
_NEARLY = Fraction(1, 200)
"""Relative difference that "about equal" always allows."""
_PI_ROUNDED = Fraction(1, 400)
"""Allowed relative difference of values with pi, which may have been calculated with 3.14."""


@dataclass(frozen=True, slots=True)
class EqualityOutcome:
    """Result of checking an equality."""

    holds: bool
    difference: Fraction | None = None
    """Absolute difference of the exact values; None unless both are rational and differ."""
    reason: str = ""
    """Explanation in plain English why the equality is false; empty if it holds."""


def decide_equality(
    left: Side, right: Side, *, is_approximate: bool, may_be_rounded: bool
) -> EqualityOutcome | None:
    """Return whether the sides are equal, and why not; None if that is not certain.

    Args:
        left: left side of the equality. A side without an operation is not decided, since a
            single number may belong to a unit or a name (`30 minutes = 30/60`).
        right: right side of the equality.
        is_approximate: True if the relation is "about equal" instead of "equal".
        may_be_rounded: True if the step says that whole numbers may be rounded fractions.
    """
    if not left.num_operations or left.letters or right.letters:
        return None
    a, b = evaluate_formula(left.text), evaluate_formula(right.text)
    if a is None or b is None:
        return None
    if a.rational is None or b.rational is None:
        return _decide_irrational_equality(left, right, a, b, is_approximate=is_approximate)
    x, y = a.rational, b.rational
    if x == y:
        return EqualityOutcome(True)
    distance = abs(x - y)
    if distance <= _compute_rounding_margin(
        left, right, x, y, is_approximate=is_approximate, may_be_rounded=may_be_rounded
    ):
        return None
    if left.is_ambiguous or right.is_ambiguous or _may_differ_without_error(left, right, x, y):
        return None
    if (
        left.mixed_number_reading or right.mixed_number_reading
    ) and _holds_with_other_mixed_numbers(left, right):
        return None
    reason = f"{_format_side(left)} is {_format_value(x)}, not {_format_side(right)}"
    return EqualityOutcome(False, distance, reason)


@lru_cache(maxsize=8192)
def evaluate_formula(text: str) -> RationalExpression | None:
    """Return the exact value of a formula; None if it has none or needs too much work."""
    set_work_limit(_MAX_UNITS_OF_WORK)
    try:
        return read_expression(text)
    except (NotClosed, TooMuchWork, RecursionError):
        return None
    finally:
        set_work_limit(None)


def _holds_with_other_mixed_numbers(left: Side, right: Side) -> bool:
    """Return whether the sides are about equal with the other reading of mixed numbers.

    `2 1/2` may also be a product, or an item number before the fraction.
    """
    for a, b in product(
        (left.text, left.mixed_number_reading), (right.text, right.mixed_number_reading)
    ):
        x, y = (evaluate_formula(text) if text else None for text in (a, b))
        if x is None or y is None:
            continue
        if x.rational is None or y.rational is None:
            return True
        if abs(x.rational - y.rational) <= abs(x.rational) * _about:
            return True
    return False


def _decide_irrational_equality(
    left: Side,
    right: Side,
    left_value: RationalExpression,
    right_value: RationalExpression,
    *,
    is_approximate: bool,
) -> EqualityOutcome | None:
    """Decide an equality with roots, logarithms or pi.

    It is false only if the real values differ clearly.
    """
    set_work_limit(_MAX_UNITS_OF_WORK)
    try:
        if algebra.same_canonical_form(left_value, right_value):
            return EqualityOutcome(True)
        if algebra.get_free_symbols(left_value) or algebra.get_free_symbols(right_value):
            return None
        x, y = evaluate_as_real(left_value), evaluate_as_real(right_value)
    except (NotClosed, TooMuchWork):
        return None
    finally:
        set_work_limit(None)
    if (
        x is None
        or y is None
        or left.is_ambiguous
        or right.is_ambiguous
        or left.mixed_number_reading
        or right.mixed_number_reading
    ):
        return None
    exact_x, exact_y = Fraction(x), Fraction(y)
    size = max(abs(exact_x), abs(exact_y))
    allowed = (
        _compute_rounding_margin(
            left, right, exact_x, exact_y, is_approximate=is_approximate, may_be_rounded=True
        )
        + size / 10**6
    )
    if "π" in left.text or "π" in right.text:
        allowed += size * _PI_ROUNDED
    if abs(exact_x - exact_y) <= allowed or _may_differ_without_error(
        left, right, exact_x, exact_y
    ):
        return None
    return EqualityOutcome(
        False, None, f"{_format_side(left)} is about {x:.6g}, not {_format_side(right)}"
    )


def _compute_rounding_margin(
    left: Side,
    right: Side,
    left_value: Fraction,
    right_value: Fraction,
    *,
    is_approximate: bool,
    may_be_rounded: bool,
) -> Fraction:
    """Return the largest difference of the values x (left) and y (right) that rounding explains.

    A number may be truncated instead of rounded, so a whole unit of its last place is allowed.
    Decimals with two or more places may be rounded numbers, so their relative error is added.
    """
    allowed = Fraction(0)
    if right.single_number is not None:
        unit = Fraction(1, 10 ** len(right.single_number.partition(".")[2]))
        if right.has_percent:
            unit /= 100
        shortened = "." in right.single_number or right.has_percent or may_be_rounded
        if is_approximate or (shortened and (left_value / unit).denominator != 1):
            allowed = unit
        if is_approximate and unit == 1:
            allowed = Fraction(
                10 ** min(len(right.single_number) - len(right.single_number.rstrip("0")), 12)
            )
    elif is_approximate:
        allowed = abs(right_value) * _about
    if is_approximate:
        allowed = max(allowed, abs(left_value) * _NEARLY)
    size = max(abs(left_value), abs(right_value))
    for decimal in (*left.decimals, *(right.decimals if right.single_number is None else ())):
        allowed += size * _compute_relative_rounding_error(decimal)
    return allowed


def _compute_relative_rounding_error(decimal: str) -> Fraction:
    """Return the relative error of a decimal that may be a rounded number."""
    places = len(decimal.partition(".")[2])
    value = abs(Fraction(decimal))
    if places < 2 or not value:
        return Fraction(0)
    return min(Fraction(1, 10**places) / value, Fraction(1, 10))


def _may_differ_without_error(
    left: Side, right: Side, left_value: Fraction, right_value: Fraction
) -> bool:
    """Return whether the values x (left) and y (right) differ by something else than an error.

    The explanations are: a percentage without its sign, a conversion of units, a further operation
    on the intermediate result (`5 + 3 = 8 + 2 = 10`), and a percentage of the number before it
    (`50 + 10%`).
    """
    if left_value and right_value:
        ratio = max(abs(left_value / right_value), abs(right_value / left_value))
        if ratio == 100:
            return True
        if left.units != right.units:
            both = bool(left.units and right.units)
            if ratio in CONVERSIONS and (both or ratio >= _SURELY_A_CONVERSION):
                return True
            if both and _FRACTION.fullmatch(left.text):  # `1/2 inch = 20 miles` is a scale
                return True
    if right.has_percent != left.has_percent:
        nearest = min(
            abs(abs(left_value) * 100 - abs(right_value)),
            abs(abs(right_value) * 100 - abs(left_value)),
        )
        if nearest < 1:
            return True
    if (left.has_percent and left.has_sum) or (right.has_percent and right.has_sum):
        return True
    return _begins_or_ends_with_value(right, left_value)


def _begins_or_ends_with_value(right: Side, left_value: Fraction) -> bool:
    """Return whether the right side is a formula that begins or ends with the left side's value."""
    if right.single_number is not None or not right.num_operations:
        return False
    ends = (_FIRST_NUMBER.match(right.text), _LAST_NUMBER.search(right.text))
    return any(match is not None and Fraction(match[1]) == abs(left_value) for match in ends)


def _format_side(side: Side) -> str:
    text = side.text if len(side.text) <= 2 * _MAX_SHOWN else f"{side.text[: 2 * _MAX_SHOWN]}..."
    for sign in "*/+":
        text = text.replace(sign, f" {sign} ")
    return " ".join(_BINARY_MINUS.sub(" - ", text).split())


def _format_value(x: Fraction) -> str:
    """Return a value as short text: a whole number, a short decimal, or a fraction."""
    if max(x.numerator.bit_length(), x.denominator.bit_length()) > 3 * _MAX_SHOWN:
        return "a large number"
    if x.denominator == 1:
        return str(x.numerator)
    rest = x.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    if rest == 1 and x.denominator <= 10**6:
        return f"{float(x):.10g}"
    return f"{x.numerator}/{x.denominator}"
