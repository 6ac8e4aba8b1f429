"""Sums of inverse tangents, sines and cosines of rational numbers, compared exactly.

arctan(p/q) is the angle of the Gaussian number q + pi, so that a whole number of such angles add up
to the angle of a product of Gaussian numbers, which is worked out.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, lcm
from typing import Any

from mclabel.answers.effort import spend
from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.monomials import UNIT
from mclabel.answers.values.sampling import size_of_difference

_ARCS = ("arctan", "arcsin", "arccos")
_MAX_TIMES = 200
"""How often one angle may be taken."""
_MAX_SIZE = 10**12
_NEAR = 1e-6
_HALF_TURN = frozenset((("π", 1),))

Gaussian = tuple[int, int]


def same_angles(left: Value, right: Value) -> bool:
    """Whether two sums of angles are equal; False where they differ or are no such sums."""
    if left.den is not UNIT or right.den is not UNIT or not (_has_arc(left) or _has_arc(right)):
        return False
    difference = algebra.add(left, algebra.negate(right))
    terms = [_angle(mono) for mono in difference.num]
    if None in terms:
        return False
    times = [Fraction(coefficient) for coefficient in difference.num.values()]
    scale = lcm(*(one.denominator for one in times))
    product: Gaussian = (1, 0)
    for factor, one in zip(terms, times, strict=True):
        count = int(one * scale)
        if abs(count) > _MAX_TIMES:
            return False
        if factor is not None:
            spend(abs(count))
            product = _times(product, factor, count)
    size = size_of_difference(left, right)
    # The sum is a multiple of a half turn over the scale: near zero it is zero.
    return product[1] == 0 and size is not None and size < _NEAR / scale


def _has_arc(value: Value) -> bool:
    return any(isinstance(x, tuple) and x[0] in _ARCS for mono in value.num for x, _ in mono)


def _angle(mono: Any) -> Gaussian | None:
    """The Gaussian number of which a monomial is the angle; None if it is no angle."""
    if mono == _HALF_TURN:
        return (-1, 0)
    if len(mono) != 1:
        return None
    ((x, exponent),) = mono
    if exponent != 1 or not isinstance(x, tuple) or x[0] not in _ARCS:
        return None
    num, den = x[1]
    argument = Value(dict(num), UNIT).rational if den == frozenset(UNIT.items()) else None
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


def _times(product: Gaussian, factor: Gaussian, count: int) -> Gaussian:
    a, b = product
    c, d = factor if count >= 0 else (factor[0], -factor[1])
    for _ in range(abs(count)):
        a, b = a * c - b * d, a * d + b * c
    return a, b
