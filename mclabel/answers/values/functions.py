"""Functions of closed forms.

A result is exact if the argument allows it. Otherwise it is an opaque atom: a factor that stands
for the function of its argument and is not evaluated.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mclabel.answers.values import algebra, powers
from mclabel.answers.values.algebra import RationalExpression, make_atom_value, make_number_value
from mclabel.answers.values.monomials import NO_ATOMS, UNIT, Monomial, NotClosed
from mclabel.answers.values.sampling import evaluate_as_real

MAX_FACTORIAL = 2_000
"""Largest n for which n! is computed."""
MAX_LARGE_FACTORIAL = 10**6
"""Largest supported n of n!. Above `MAX_FACTORIAL`, n! is a multiple of the opaque atom m!, where m
is a multiple of `_CHUNK`."""
_CHUNK = 100
MAX_BINOMIAL = 10**9
"""Largest n of a binomial coefficient "n choose k"."""
MAX_CHOSEN = 500
"""Largest value of min(k, n - k) of a binomial coefficient "n choose k"."""
MAX_SYMBOLIC_CHOSEN = 12
"""Largest k of a binomial coefficient "n choose k" that is expanded to a polynomial in a formula
n, and largest integer c of a factorial (m + c)! that is expanded."""


def apply_function(
    name: str, argument: RationalExpression, base: RationalExpression | None
) -> RationalExpression:
    """Return the value of a function at an argument.

    Args:
        name: name of the function as in LaTeX, without the backslash.
        argument: argument of the function.
        base: base of `log`; None if it is not stated, and for all other functions.
    """
    if name == "ln":
        return powers.logarithm(argument)
    if name == "lg":
        base = make_number_value(10)
    if name in ("log", "lg"):
        if base is None:
            n = argument.rational
            exact = None if n is None else _find_exponent_of_ten(n)
            if exact is not None:
                return make_number_value(exact)
            return algebra.divide(powers.logarithm(argument), make_atom_value(powers.BARE_LOG))
        return algebra.divide(powers.logarithm(argument), powers.logarithm(base))
    if name == "exp":
        return powers.power(make_atom_value("e"), argument)
    if name == "cis":
        sine = algebra.multiply(make_atom_value("i"), apply_function("sin", argument, None))
        return algebra.add(apply_function("cos", argument, None), sine)
    if name in ("sinh", "cosh", "tanh"):
        return _evaluate_hyperbolic(name, argument)
    if name in ("arcsin", "arccos", "arctan"):
        return _evaluate_inverse_trigonometric(name, argument)
    if name == "abs":
        return absolute_value(argument)
    if name in ("sqrt", "cbrt"):
        return powers.power(argument, make_number_value(Fraction(1, 2 if name == "sqrt" else 3)))
    return _evaluate_exact_trigonometric(name, argument) or _evaluate_trigonometric(name, argument)


def _evaluate_hyperbolic(name: str, argument: RationalExpression) -> RationalExpression:
    """Return sinh, cosh or tanh of an argument in terms of powers of e."""
    up, down = (
        powers.power(make_atom_value("e"), exponent)
        for exponent in (argument, algebra.negate(argument))
    )
    difference, total = algebra.add(up, algebra.negate(down)), algebra.add(up, down)
    if name == "tanh":
        return algebra.divide(difference, total)
    return algebra.divide(difference if name == "sinh" else total, make_number_value(2))


def _evaluate_trigonometric(name: str, argument: RationalExpression) -> RationalExpression:
    """Return tan, cot, sec or csc in terms of sine and cosine.

    Any other function becomes an opaque atom.
    """
    sine, cosine = (
        make_atom_value((wave, algebra.make_hashable_key(argument))) for wave in ("sin", "cos")
    )
    match name:
        case "tan":
            return algebra.divide(sine, cosine)
        case "cot":
            return algebra.divide(cosine, sine)
        case "sec":
            return algebra.reciprocal(cosine)
        case "csc":
            return algebra.reciprocal(sine)
    return make_atom_value((name, algebra.make_hashable_key(argument)))


def _find_exponent_of_ten(n: Fraction) -> int | None:
    """Return the exponent of a power of ten; None for any other number.

    A `log` without a base is evaluated only for powers of ten.
    """
    if n.denominator != 1 or not 0 < n < 10**400:
        return None
    exponent = len(str(n.numerator)) - 1
    return exponent if n == 10**exponent else None


def _evaluate_exact_trigonometric(
    name: str, argument: RationalExpression
) -> RationalExpression | None:
    """Return sin, cos or tan of a multiple of 15 degrees exactly; None for other arguments."""
    turns = algebra.divide(argument, make_atom_value("π")).rational
    if turns is None or (turns * 12).denominator != 1 or name not in ("sin", "cos", "tan"):
        return None
    twelfths = int(turns * 12)
    if name == "tan":
        cosine = _compute_sine(twelfths + 6)
        return algebra.divide(_compute_sine(twelfths), cosine) if cosine.numerator else None
    return _compute_sine(twelfths if name == "sin" else twelfths + 6)


def _evaluate_inverse_trigonometric(name: str, argument: RationalExpression) -> RationalExpression:
    """Return arcsin, arccos or arctan, as a multiple of π if it is a multiple of 15 degrees."""
    wave = "tan" if name == "arctan" else "sin"
    for twelfths in range(-6, 7) if not algebra.get_free_symbols(argument) else ():
        angle = algebra.multiply(make_atom_value("π"), make_number_value(Fraction(twelfths, 12)))
        value = _evaluate_exact_trigonometric(wave, angle)
        if value is not None and algebra.same_canonical_form(value, argument):
            if name != "arccos":
                return angle
            return algebra.multiply(
                make_atom_value("π"), make_number_value(Fraction(6 - twelfths, 12))
            )
    return make_atom_value((name, algebra.make_hashable_key(argument)))


def _compute_sine(twelfths: int) -> RationalExpression:
    """Return the sine of `twelfths` · π/12."""
    place = twelfths % 24
    sign = -1 if place > 12 else 1
    place = min(place % 12, 12 - place % 12)
    half = Fraction(1, 2)
    quarter = Fraction(1, 4)
    terms = {
        0: (),
        1: ((6, quarter), (2, -quarter)),
        2: ((1, half),),
        3: ((2, half),),
        4: ((3, half),),
        5: ((6, quarter), (2, quarter)),
        6: ((1, Fraction(1)),),
    }[place]
    total = make_number_value(0)
    for radicand, coefficient in terms:
        root = powers.power(make_number_value(radicand), make_number_value(half))
        total = algebra.add(total, algebra.multiply(make_number_value(sign * coefficient), root))
    return total


def factorial(value: RationalExpression) -> RationalExpression:
    """Return n! for an integer or a formula n.

    Raises:
        NotClosed: n is negative, too large, or not an integer.
    """
    n = value.rational
    if n is None:
        return _expand_symbolic_factorial(value)
    if n.denominator != 1 or not 0 <= n <= MAX_LARGE_FACTORIAL:
        raise NotClosed("a factorial out of range")
    if n <= MAX_FACTORIAL:
        return make_number_value(math.factorial(int(n)))
    base = int(n) - int(n) % _CHUNK
    rest = make_number_value(math.prod(range(base + 1, int(n) + 1)))
    return algebra.multiply(
        make_atom_value(("factorial", algebra.make_hashable_key(make_number_value(base)))), rest
    )


def _expand_symbolic_factorial(value: RationalExpression) -> RationalExpression:
    """Return (m + c)! as m!·(m+1)…(m+c), so that n·(n-1)! equals n!."""
    shift = Fraction(value.numerator.get(NO_ATOMS, 0))
    if value.denominator is not UNIT or shift.denominator != 1 or abs(shift) > MAX_SYMBOLIC_CHOSEN:
        return make_atom_value(("factorial", algebra.make_hashable_key(value)))
    rest = algebra.add(value, make_number_value(-shift))
    result = make_atom_value(("factorial", algebra.make_hashable_key(rest)))
    for i in range(1, int(shift) + 1):
        result = algebra.multiply(result, algebra.add(rest, make_number_value(i)))
    for i in range(0, -int(shift)):
        result = algebra.divide(result, algebra.add(rest, make_number_value(-i)))
    return result


def binomial(top: RationalExpression, bottom: RationalExpression) -> RationalExpression:
    """Return the binomial coefficient "n choose k".

    Args:
        top: n, an integer or a formula.
        bottom: k. If it is not an integer, the result is an opaque atom.

    Raises:
        NotClosed: n is not an integer, is below k, or is too large.
    """
    n, k = top.rational, bottom.rational
    if k is None or k.denominator != 1 or not 0 <= k <= MAX_BINOMIAL:
        return make_atom_value(
            ("binomial", algebra.make_hashable_key(top), algebra.make_hashable_key(bottom))
        )
    if n is None:
        return _expand_symbolic_binomial(top, int(k))
    if n.denominator != 1 or not k <= n <= MAX_BINOMIAL:
        raise NotClosed("a binomial out of range")
    chosen = min(int(k), int(n - k))
    if chosen > MAX_CHOSEN:
        raise NotClosed("a binomial out of range")
    return make_number_value(math.comb(int(n), chosen))


def _expand_symbolic_binomial(top: RationalExpression, k: int) -> RationalExpression:
    """Return `n(n-1)…(n-k+1)/k!` for a formula n."""
    if k > MAX_SYMBOLIC_CHOSEN:
        return make_atom_value(
            (
                "binomial",
                algebra.make_hashable_key(top),
                algebra.make_hashable_key(make_number_value(k)),
            )
        )
    product = make_number_value(Fraction(1, math.factorial(k)))
    for i in range(k):
        product = algebra.multiply(product, algebra.add(top, make_number_value(-i)))
    return product


def absolute_value(value: RationalExpression) -> RationalExpression:
    """Return the absolute value: exact for a number, an opaque atom for a formula with symbols."""
    if algebra.get_free_symbols(value):
        return make_atom_value(("abs", algebra.make_hashable_key(_choose_canonical_sign(value))))
    size = evaluate_as_real(value)
    if size is None:
        return _compute_modulus(value)
    return algebra.negate(value) if size < 0 else value


def _choose_canonical_sign(value: RationalExpression) -> RationalExpression:
    """Return a formula or its negative, such that the result is the same for both."""
    first = min(value.numerator, key=lambda mono: sorted(map(repr, mono)))
    return algebra.negate(value) if value.numerator[first] < 0 else value


def _compute_modulus(value: RationalExpression) -> RationalExpression:
    """Return the modulus √(a² + b²) of a complex number a + bi."""
    if value.denominator is not UNIT:
        return algebra.divide(
            _compute_modulus(RationalExpression(value.numerator, UNIT)),
            _compute_modulus(RationalExpression(value.denominator, UNIT)),
        )
    parts: tuple[dict[Monomial, int | Fraction], ...] = ({}, {})
    for mono, coefficient in value.numerator.items():
        rest = frozenset((x, n) for x, n in mono if x != "i")
        parts[len(rest) != len(mono)][rest] = coefficient
    total = make_number_value(0)
    for part in parts:
        component = RationalExpression(part, UNIT)
        if part and evaluate_as_real(component) is None:
            raise NotClosed("parts that are not real numbers")
        total = algebra.add(total, algebra.multiply(component, component))
    return powers.power(total, make_number_value(Fraction(1, 2)))


def round_to_integer(value: RationalExpression, *, rounds_up: bool) -> RationalExpression:
    """Return the ceiling of a value if `rounds_up` is true, its floor otherwise."""
    n = value.rational
    if n is None:
        return make_atom_value(("ceil" if rounds_up else "floor", algebra.make_hashable_key(value)))
    return make_number_value(math.ceil(n) if rounds_up else math.floor(n))
