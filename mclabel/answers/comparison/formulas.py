"""Compares two formulas by exact arithmetic, by rules, and by their values at a point.

Sums of inverse tangents, sines and cosines of rational numbers are compared exactly. arctan(p/q) is
the argument of the Gaussian integer q + p·i. A sum of such angles is therefore the argument of a
product of Gaussian integers, which is computed exactly.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, lcm
from typing import Any

from mclabel.answers.comparison.names import (
    same_antiderivative,
    same_up_to_constant_or_integer_names,
)
from mclabel.answers.effort import spend_work
from mclabel.answers.values import algebra, powers
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import ClosedForm, Form, Number, get_closed_value
from mclabel.answers.values.literals import Literal, rounds_to
from mclabel.answers.values.monomials import UNIT, NotClosed
from mclabel.answers.values.sampling import (
    clearly_differ,
    compute_absolute_difference,
    evaluate_as_real,
)

FULL_PRECISION = 15
"""Significant digits from which a decimal counts as equal to the exact number that it rounds."""


def same_formulas(answer: Form, gold: Form) -> bool | None:
    """Return whether two formulas are equal; None if exact arithmetic cannot decide."""
    left, right = get_closed_value(answer), get_closed_value(gold)
    if left is None or right is None:
        return None
    try:
        if algebra.same_canonical_form(left, right) or _is_difference_accepted(
            answer, gold, left, right
        ):
            return True
        if algebra.has_no_opaque_atoms(left) and algebra.has_no_opaque_atoms(right):
            return False
        if clearly_differ(left, right):
            return False
        return _same_sign_and_square(left, right) or same_angle_sums(left, right) or None
    except NotClosed:
        return None


def _is_difference_accepted(
    answer: Form, gold: Form, answer_value: RationalExpression, gold_value: RationalExpression
) -> bool:
    """Return whether a rule accepts the difference between two formulas.

    The rules cover rounding, magnitudes such as `2.6B`, names of arbitrary constants, and a single
    letter in upper or lower case.
    """
    if isinstance(gold, Number) and rounds_to_gold(answer_value, gold.literal):
        return True
    if isinstance(answer, Number) and is_float_rounding(answer.literal, gold_value):
        return True
    if _same_number_with_magnitude_letter(answer, gold):
        return True
    if same_antiderivative(answer_value, gold_value) or same_up_to_constant_or_integer_names(
        answer_value, gold_value
    ):
        return True
    letter, other_letter = get_single_letter(answer), get_single_letter(gold)
    return bool(letter and other_letter and letter.lower() == other_letter.lower())


def _same_number_with_magnitude_letter(answer: Form, gold: Form) -> bool:
    """Return whether one form has a magnitude, such as `2.6B`, and the other is that number.

    A gold with a magnitude must have a decimal point. Otherwise its letter may be a variable.
    """
    if isinstance(answer, ClosedForm) and answer.magnitude is not None and isinstance(gold, Number):
        return equals_or_rounds_to(answer.magnitude.value, gold.literal)
    if isinstance(gold, ClosedForm) and gold.magnitude is not None and isinstance(answer, Number):
        size = gold.magnitude
        is_clear = size.num_decimals > 0 and (size.unit_in_last_place or 0) > 1000
        return is_clear and equals_or_rounds_to(answer.literal.value, size)
    return False


def get_single_letter(form: Form) -> str | None:
    """Return the letter if a form is a single letter; None otherwise."""
    if (
        not isinstance(form, ClosedForm)
        or len(form.value.numerator) != 1
        or len(form.value.denominator) != 1
    ):
        return None
    ((mono, coefficient),) = form.value.numerator.items()
    if coefficient != 1 or len(mono) != 1:
        return None
    ((name, exponent),) = mono
    return name if exponent == 1 and isinstance(name, str) and len(name) == 1 else None


def _same_sign_and_square(left: RationalExpression, right: RationalExpression) -> bool:
    """Return whether two real numbers have the same sign and the same square.

    For example, √(7 + 4√3) and 2 + √3 have.
    """
    if algebra.get_free_symbols(left) or algebra.get_free_symbols(right):
        return False
    left_real, right_real = evaluate_as_real(left), evaluate_as_real(right)
    if left_real is None or right_real is None or left_real * right_real <= 0:
        return False
    return algebra.same_canonical_form(powers.square(left), powers.square(right))


def equals_or_rounds_to(value: Fraction, gold: Literal) -> bool:
    """Return whether a rational number equals a decimal gold or rounds to it.

    The number may be rounded only to a gold with at least 2 decimals or 3 significant digits.

    Args:
        value: value of the answer.
        gold: the gold as it was written.
    """
    if value == gold.value or gold.unit_in_last_place is None:
        return value == gold.value
    return (gold.num_decimals >= 2 or gold.num_digits >= 3) and rounds_to(value, gold)


def rounds_to_gold(value: RationalExpression, gold: Literal) -> bool:
    """Return whether a formula rounds to a decimal gold."""
    if gold.unit_in_last_place is None:
        return False
    exact = value.rational
    if exact is not None:
        return equals_or_rounds_to(exact, gold)
    if algebra.get_free_symbols(value):
        return False
    size = evaluate_as_real(value)
    return size is not None and rounds_to(Fraction(size), gold)


def is_float_rounding(answer: Literal, gold: RationalExpression) -> bool:
    """Return whether an answer of at least `FULL_PRECISION` digits is a rounding of the gold."""
    if answer.num_digits < FULL_PRECISION or algebra.get_free_symbols(gold):
        return False
    size = evaluate_as_real(gold)
    if size is None:
        return False
    distance = abs(answer.value - Fraction(size))
    return distance <= abs(answer.value) * Fraction(1, 10 ** (FULL_PRECISION - 1))


_ARCS = ("arctan", "arcsin", "arccos")
_MAX_TIMES = 200
"""Largest multiple of one angle in a sum of angles that is compared exactly."""
_MAX_SIZE = 10**12
_NEAR = 1e-6
_HALF_TURN = frozenset((("π", 1),))

GaussianInteger = tuple[int, int]


def same_angle_sums(left: RationalExpression, right: RationalExpression) -> bool:
    """Return whether two values are equal sums of inverse tangents, sines and cosines."""
    if (
        left.denominator is not UNIT
        or right.denominator is not UNIT
        or not (
            _has_inverse_trigonometric_function(left) or _has_inverse_trigonometric_function(right)
        )
    ):
        return False
    difference = algebra.add(left, algebra.negate(right))
    terms = [_convert_angle_to_gaussian_integer(mono) for mono in difference.numerator]
    if None in terms:
        return False
    times = [Fraction(coefficient) for coefficient in difference.numerator.values()]
    scale = lcm(*(multiple.denominator for multiple in times))
    product: GaussianInteger = (1, 0)
    for factor, multiple in zip(terms, times, strict=True):
        count = int(multiple * scale)
        if abs(count) > _MAX_TIMES:
            return False
        if factor is not None:
            spend_work(abs(count))
            product = _multiply_by_gaussian_power(product, factor, count)
    size = compute_absolute_difference(left, right)
    # The difference is now a multiple of π / scale, so that it is zero if it is nearly zero.
    return product[1] == 0 and size is not None and size < _NEAR / scale


def _has_inverse_trigonometric_function(value: RationalExpression) -> bool:
    return any(isinstance(x, tuple) and x[0] in _ARCS for mono in value.numerator for x, _ in mono)


def _convert_angle_to_gaussian_integer(monomial: Any) -> GaussianInteger | None:
    """Return the Gaussian integer whose argument is the monomial; None if it is not an angle."""
    if monomial == _HALF_TURN:
        return (-1, 0)
    if len(monomial) != 1:
        return None
    ((x, exponent),) = monomial
    if exponent != 1 or not isinstance(x, tuple) or x[0] not in _ARCS:
        return None
    numerator, denominator = x[1]
    argument = (
        RationalExpression(dict(numerator), UNIT).rational
        if denominator == frozenset(UNIT.items())
        else None
    )
    if argument is None or max(abs(argument.numerator), argument.denominator) > _MAX_SIZE:
        return None
    along, across = argument.denominator, argument.numerator
    if x[0] == "arctan":
        return along, across
    rest = along * along - across * across
    other = isqrt(max(rest, 0))
    if rest < 0 or other * other != rest:
        return None
    return (other, across) if x[0] == "arcsin" else (across, other)


def _multiply_by_gaussian_power(
    product: GaussianInteger, factor: GaussianInteger, exponent: int
) -> GaussianInteger:
    a, b = product
    c, d = factor if exponent >= 0 else (factor[0], -factor[1])
    for _ in range(abs(exponent)):
        a, b = a * c - b * d, a * d + b * c
    return a, b
