"""Sets of real numbers as unions of intervals with exact ends."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression
from mclabel.answers.values.forms import Interval, Reals, Relation
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.sampling import evaluate_as_real

ALL = Reals((Interval(None, False, None, False),))
"""The set of all real numbers."""


def make_interval(
    low: RationalExpression | None,
    high: RationalExpression | None,
    *,
    are_ends_closed: tuple[bool, bool],
) -> Reals:
    """Return the interval between two ends; the empty set if `low` is above `high`.

    Args:
        low: lower end; None for minus infinity.
        high: upper end; None for infinity.
        are_ends_closed: two flags, True if the lower end, or the upper end, is in the interval.

    Raises:
        NotClosed: an end is not a real number.
    """
    if low is not None and high is not None:
        order = _compare_interval_ends(low, high)
        if order > 0 or (order == 0 and not all(are_ends_closed)):
            return Reals(())
    for end in (low, high):
        if end is not None:
            _convert_end_to_float(end)
    return Reals(
        (
            Interval(
                low,
                are_ends_closed[0] and low is not None,
                high,
                are_ends_closed[1] and high is not None,
            ),
        )
    )


def union(sets: Iterable[Reals]) -> Reals:
    """Return the union of sets, in which touching intervals are joined.

    Raises:
        NotClosed: an end is not a real number.
    """
    pieces = sorted(
        (piece for reals in sets for piece in reals.pieces),
        key=lambda piece: (
            -math.inf if piece.low is None else _convert_end_to_float(piece.low),
            not piece.is_low_closed,
        ),
    )
    joined: list[Interval] = []
    for piece in pieces:
        if joined and _are_intervals_touching(joined[-1], piece):
            joined[-1] = _join_intervals(joined[-1], piece)
        else:
            joined.append(piece)
    return Reals(tuple(joined))


def intersection(a: Reals, b: Reals) -> Reals:
    """Return the intersection of two sets.

    Raises:
        NotClosed: an end is not a real number.
    """
    pieces = []
    for p in a.pieces:
        for q in b.pieces:
            low, low_closed = _choose_tighter_end(
                p.low, p.is_low_closed, q.low, q.is_low_closed, sign=1
            )
            high, high_closed = _choose_tighter_end(
                p.high, p.is_high_closed, q.high, q.is_high_closed, sign=-1
            )
            pieces.append(make_interval(low, high, are_ends_closed=(low_closed, high_closed)))
    return union(pieces)


def make_reals_except(point: RationalExpression) -> Reals:
    """Return the set of all real numbers except `point`."""
    return Reals((Interval(None, False, point, False), Interval(point, False, None, False)))


def same_set(a: Reals, b: Reals) -> bool | None:
    """Return whether two sets are equal.

    The result is None if two ends are nearly equal but not provably equal.
    """
    if len(a.pieces) != len(b.pieces):
        return False
    unsure = False
    for p, q in zip(a.pieces, b.pieces, strict=True):
        if (p.is_low_closed, p.is_high_closed) != (q.is_low_closed, q.is_high_closed):
            return False
        for left, right in ((p.low, q.low), (p.high, q.high)):
            if (left is None) != (right is None):
                return False
            if left is None or right is None or algebra.same_canonical_form(left, right):
                continue
            if algebra.has_no_opaque_atoms(left) and algebra.has_no_opaque_atoms(right):
                return False
            if abs(_convert_end_to_float(left) - _convert_end_to_float(right)) > 1e-9:
                return False
            unsure = True
    return None if unsure else True


def solve_relation(
    left: RationalExpression, sign: str, right: RationalExpression
) -> Reals | Relation:
    """Solve the inequality `left sign right`.

    Returns:
        The set of solutions if the inequality has one variable, which must occur linearly; a
        `Relation` if it has several variables.

    Raises:
        NotClosed: the inequality has no variable or is not linear.
    """
    if sign in ("<", "≤"):
        left, right = right, left
    difference = algebra.add(left, algebra.negate(right))
    names = algebra.get_free_symbols(difference)
    if not names:
        raise NotClosed("an inequality between numbers")
    if len(names) > 1:
        if sign == "≠":
            raise NotClosed("≠ with several variables is not supported")
        return Relation(difference, is_strict=sign in "<>")
    (name,) = names
    slope, rest = _find_linear_coefficients(difference, name)
    root = algebra.divide(algebra.negate(rest), slope)
    if sign == "≠":
        return Reals(make_reals_except(root).pieces, name)
    closed = sign in ("≤", "≥")
    if _convert_end_to_float(slope) > 0:
        solutions = make_interval(root, None, are_ends_closed=(closed, False))
    else:
        solutions = make_interval(None, root, are_ends_closed=(False, closed))
    return Reals(solutions.pieces, name)


def _find_linear_coefficients(
    difference: RationalExpression, name: str
) -> tuple[RationalExpression, RationalExpression]:
    """Return the slope and the constant term of a polynomial that is linear in its variable.

    Raises:
        NotClosed: the polynomial is not linear.
    """
    if len(difference.denominator) > 1 or algebra.get_free_symbols(
        RationalExpression(difference.denominator, difference.denominator)
    ):
        raise NotClosed("not linear")
    slope, rest = {}, {}
    for mono, coefficient in difference.numerator.items():
        exponents = dict(mono)
        if name not in exponents:
            rest[mono] = coefficient
            continue
        if exponents.pop(name) != 1:
            raise NotClosed("not linear")
        slope[frozenset(exponents.items())] = coefficient
    slope_value, rest_value = (
        RationalExpression(slope, difference.denominator),
        RationalExpression(rest, difference.denominator),
    )
    if algebra.get_free_symbols(slope_value) or algebra.get_free_symbols(rest_value) or not slope:
        raise NotClosed("not linear")
    return slope_value, rest_value


def _convert_end_to_float(value: RationalExpression) -> float:
    exact = value.rational
    if exact is not None and abs(exact) < 2**1000:
        return float(exact)
    place = evaluate_as_real(value)
    if place is None:
        raise NotClosed("an end that is not a real number")
    return place


def _compare_interval_ends(a: RationalExpression, b: RationalExpression) -> int:
    if algebra.same_canonical_form(a, b):
        return 0
    left: float | Fraction | None = a.rational
    right: float | Fraction | None = b.rational
    if left is None or right is None:
        left, right = _convert_end_to_float(a), _convert_end_to_float(b)
    return (left > right) - (left < right)


def _are_intervals_touching(first: Interval, second: Interval) -> bool:
    if first.high is None or second.low is None:
        return True
    order = _compare_interval_ends(second.low, first.high)
    return order < 0 or (order == 0 and (first.is_high_closed or second.is_low_closed))


def _join_intervals(first: Interval, second: Interval) -> Interval:
    if first.high is None or second.high is None:
        return Interval(first.low, first.is_low_closed, None, False)
    order = _compare_interval_ends(first.high, second.high)
    if order == 0:
        closed = first.is_high_closed or second.is_high_closed
        return Interval(first.low, first.is_low_closed, first.high, closed)
    last = first if order > 0 else second
    return Interval(first.low, first.is_low_closed, last.high, last.is_high_closed)


def _choose_tighter_end(
    a: RationalExpression | None,
    a_closed: bool,
    b: RationalExpression | None,
    b_closed: bool,
    *,
    sign: int,
) -> tuple[RationalExpression | None, bool]:
    """Return the larger of two lower ends, or the smaller of two upper ends if `sign` is -1.

    An end is a value, None if infinite, and a flag that is True if it belongs to the interval.
    """
    if a is None:
        return b, b_closed
    if b is None:
        return a, a_closed
    order = _compare_interval_ends(a, b) * sign
    if order == 0:
        return a, a_closed and b_closed
    return (a, a_closed) if order > 0 else (b, b_closed)
