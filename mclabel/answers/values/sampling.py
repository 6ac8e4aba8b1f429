"""Evaluates closed forms at sample points, to show that two are not equal.

A clear difference at a point proves that two forms differ. Agreement is never used as a proof of
equality.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from mclabel.answers.effort import spend_work
from mclabel.answers.values.algebra import RationalExpression, get_free_symbols
from mclabel.answers.values.monomials import Atom, Polynomial
from mclabel.answers.values.powers import BARE_LOG

_RELATIVE = 1e-6
"""Relative difference above which two results are different. It is far above the rounding error of
a few dozen operations. Sums with catastrophic cancellation are not evaluated."""
_POINTS = (
    (0.7310585786, 1.3862943611, 2.2360679775),
    (0.1310585786, 0.2362943611, 0.3360679775),
    (11.7310585786, 17.3862943611, 29.2360679775),
)
"""Values for the symbols. The rows with small and large values are used only if the forms cannot be
evaluated with the first row."""
_WHOLE = frozenset("klmn")
_MAX_ARGUMENT = 1e6
_LOG_BASE = "base of a bare log"
_FUNCTIONS: Mapping[str, Callable[[complex], complex]] = {
    "sin": cmath.sin,
    "cos": cmath.cos,
    "tan": cmath.tan,
    "cot": lambda z: 1 / cmath.tan(z),
    "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z),
    "sinh": cmath.sinh,
    "cosh": cmath.cosh,
    "tanh": cmath.tanh,
    "arcsin": cmath.asin,
    "arccos": cmath.acos,
    "arctan": cmath.atan,
    "abs": lambda z: complex(abs(z)),
    "factorial": lambda z: complex(math.gamma(z.real + 1)),
    "floor": lambda z: complex(math.floor(z.real)),
    "ceil": lambda z: complex(math.ceil(z.real)),
}


def clearly_differ(a: RationalExpression, b: RationalExpression) -> bool:
    """Return whether two closed forms have clearly different values at one of a few points.

    Only points at which both are defined over the real numbers are used. Elsewhere a root or a
    logarithm has several values, so that equal forms such as -ln x and ln(1/x) may seem to differ.
    """
    names = sorted(get_free_symbols(a) | get_free_symbols(b))
    for sizes in _POINTS:
        compared = False
        for shift in range(len(sizes)):
            point = {
                name: _choose_sample_value(name, sizes[(i + shift) % len(sizes)], i, shift)
                for i, name in enumerate(names)
            }
            verdict = _differ_at(a, b, point)
            if verdict:
                return True
            compared |= verdict is False
            if not names:
                return False
        if compared:
            return False
    return False


def _choose_sample_value(
    name: str, approximate_value: float, symbol_index: int, point_index: int
) -> float:
    """Return the value of a symbol at a sample point.

    The value of k, l, m and n is an integer, so that (-1)^n is defined.

    Args:
        name: name of the symbol.
        approximate_value: approximate value.
        symbol_index: index of the name among the symbols, so that no two have the same value.
        point_index: index of the point among the points of one row of `_POINTS`.
    """
    if name in _WHOLE:
        return float(math.ceil(approximate_value) + symbol_index)
    return approximate_value + 0.137 * symbol_index + 0.01 * point_index


def _differ_at(
    a: RationalExpression, b: RationalExpression, point: dict[str, float]
) -> bool | None:
    """Return whether two values differ at a point; None if a value is undefined there.

    A `log` without a base may have base e or 10. The values must differ for both.
    """
    for base in (math.e, 10.0):
        point[_LOG_BASE] = base
        left, right = evaluate_at_point(a, point), evaluate_at_point(b, point)
        if left is None or right is None:
            return None
        if abs(left - right) <= _RELATIVE * max(abs(left), abs(right), 1e-9):
            return False
    return True


def evaluate_at_point(
    a: RationalExpression, point: Mapping[str, float] | None = None
) -> complex | None:
    """Return the value of a closed form at a point.

    It is None if the form is undefined, out of range or ill-conditioned there.

    Args:
        a: the closed form.
        point: values of the symbols by name; None if the form has no symbols.
    """
    try:
        result = _evaluate_quotient(a.numerator, a.denominator, point or {})
    except (OverflowError, ZeroDivisionError, ValueError, KeyError):
        return None
    return result if cmath.isfinite(result) else None


def compute_absolute_difference(a: RationalExpression, b: RationalExpression) -> float | None:
    """Return the absolute difference of two closed forms without symbols; None if one of them
    cannot be evaluated.
    """
    left, right = evaluate_at_point(a), evaluate_at_point(b)
    return None if left is None or right is None else abs(left - right)


def overflows_float(a: RationalExpression) -> bool:
    """Return whether a closed form without symbols, or a part of it, is too large for a float."""
    if get_free_symbols(a):
        return False
    try:
        return not cmath.isfinite(_evaluate_quotient(a.numerator, a.denominator, {}))
    except OverflowError:
        return True
    except (ZeroDivisionError, ValueError, KeyError):
        return False


def evaluate_as_real(a: RationalExpression) -> float | None:
    """Return the value of a closed form without symbols if it is a real number; None otherwise."""
    result = evaluate_at_point(a)
    if result is None or abs(result.imag) > 1e-12 * max(1.0, abs(result.real)):
        return None
    return result.real


def _evaluate_quotient(numerator: Any, denominator: Any, point: Mapping[str, float]) -> complex:
    return _evaluate_polynomial(numerator, point) / _evaluate_polynomial(denominator, point)


def _evaluate_polynomial(terms: Polynomial, point: Mapping[str, float]) -> complex:
    spend_work(1 + 2 * len(terms))
    total, largest = 0j, 0.0
    for mono, coefficient in terms.items():
        term = complex(float(coefficient))
        for base, exponent in mono:
            term *= _evaluate_power(_evaluate_atom(base, point), exponent, point)
        total += term
        largest = max(largest, abs(term))
    if largest and abs(total) < 1e-9 * largest:
        raise ValueError("the terms of this sum cancel, so that its value is inaccurate")
    return total


def _evaluate_power(base: complex, exponent: int | Fraction, point: Mapping[str, float]) -> complex:
    """Return base^exponent. An odd root of a negative real number is the real root."""
    if exponent.denominator == 1:
        return base ** float(exponent)
    if base.imag == 0 and base.real < 0 and exponent.denominator % 2:
        size = complex(abs(base.real) ** float(exponent))
        return -size if exponent.numerator % 2 else size
    return _require_single_branch(base, point) ** float(exponent)


def _require_single_branch(z: complex, point: Mapping[str, float]) -> complex:
    """Return `z` unchanged if its roots and logarithm are unique, that is, if it is positive.

    If the form has no symbols (`point` has only the base of `log`), every `z` is accepted.

    Raises:
        ValueError: `z` is not positive, so that its roots and logarithm are not unique.
    """
    if len(point) > 1 and not (z.imag == 0 and z.real > 0):
        raise ValueError("roots and the logarithm of this number have several branches")
    return z


def _evaluate_atom(base: Atom, point: Mapping[str, float]) -> complex:
    if isinstance(base, int):
        return complex(base)
    if isinstance(base, str):
        constant = _CONSTANTS.get(base)
        return complex(point[base]) if constant is None else constant
    match base:
        case ("ln", prime):
            return complex(math.log(prime))
        case ("^", inner, mono):
            base_value = _require_single_branch(_evaluate_atom(inner, point), point)
            return base_value ** _evaluate_polynomial({mono: 1}, point)
        case ("power", inner, exponent):
            raised = _evaluate_argument_key(exponent, point)
            if raised.imag or not raised.real.is_integer():
                return _require_single_branch(_evaluate_argument_key(inner, point), point) ** raised
            return _evaluate_argument_key(inner, point) ** raised
        case ("root", inner):
            return _evaluate_argument_key(inner, point)
    if base == BARE_LOG:
        return complex(math.log(point.get(_LOG_BASE, math.e)))
    if base[0] == "binomial":
        return _evaluate_binomial(
            _evaluate_argument_key(base[1], point), _evaluate_argument_key(base[2], point)
        )
    argument = _evaluate_argument_key(base[1], point)
    if abs(argument) > _MAX_ARGUMENT:
        raise OverflowError("the argument of a function is too large for an accurate value")
    if base[0].startswith("call "):  # an unknown f, replaced by a function without symmetries
        return cmath.sin(1.7 * argument + 0.3) + 0.31 * argument
    if base[0] == "log":
        return cmath.log(_require_single_branch(argument, point))
    return _FUNCTIONS[base[0]](argument)


def _evaluate_binomial(n: complex, k: complex) -> complex:
    top, chosen = n.real, k.real
    size = math.lgamma(top + 1) - math.lgamma(chosen + 1) - math.lgamma(top - chosen + 1)
    if top < 0 or chosen < 0 or chosen > top:
        raise ValueError("the sign of this binomial coefficient cannot be determined")
    return complex(math.exp(size))


def _evaluate_argument_key(parts: Any, point: Mapping[str, float]) -> complex:
    numerator, denominator = parts
    return _evaluate_quotient(dict(numerator), dict(denominator), point)


_CONSTANTS = {"π": complex(math.pi), "e": complex(math.e), "i": 1j}
