"""Exact arithmetic on closed forms: rational functions over Q with radicals, π, e, i and logs.

A value is a quotient of two sums of monomials. A monomial maps atoms to exponents. The exponent of
a prime is a fraction in (0, 1), so that √12 is 2·3^½. The exponent of `i` is 1. A symbol has any
exponent.

Products of such radicals of primes are linearly independent over Q (Besicovitch 1940). π, e,
logarithms of primes and symbols are treated as independent of everything else. Two values that are
built only from these atoms are therefore equal if and only if their canonical forms are equal.
Roots of sums and functions of an argument are opaque atoms. With opaque atoms, equal forms still
imply equal values, but different forms imply nothing. `has_no_opaque_atoms` returns False for
such values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from mclabel.answers.values.monomials import (
    NO_ATOMS,
    UNIT,
    Atom,
    Monomial,
    NotClosed,
    Polynomial,
    add_terms,
    list_argument_monomials,
    multiply_terms,
    raise_monomial_to_power,
)


@dataclass(frozen=True, slots=True)
class RationalExpression:
    """A closed form: a quotient of two polynomials in atoms, such as symbols and radicals.

    Two of them must be compared by `same_canonical_form`, not by `==`.
    """

    numerator: Polynomial
    """Numerator."""
    denominator: Polynomial
    """Denominator; the constant `UNIT` itself if it is 1."""

    @property
    def rational(self) -> Fraction | None:
        """The value as a fraction; None if it is not a rational number."""
        if self.denominator is not UNIT or len(self.numerator) > 1:
            return None
        if not self.numerator:
            return Fraction(0)
        coefficient = self.numerator.get(NO_ATOMS)
        return None if coefficient is None else Fraction(coefficient)


def make_number_value(value: int | Fraction) -> RationalExpression:
    """Return the closed form of a rational number."""
    if isinstance(value, Fraction) and value.denominator == 1:
        value = value.numerator
    return RationalExpression({NO_ATOMS: value} if value else {}, UNIT)


def make_atom_value(name: Atom) -> RationalExpression:
    """Return the closed form of a single atom: a symbol, a constant or a function of arguments."""
    return RationalExpression({frozenset(((name, 1),)): 1}, UNIT)


def make_hashable_key(value: RationalExpression) -> tuple[object, object]:
    """Return a hashable key of a value. Equal keys imply equal values."""
    return frozenset(value.numerator.items()), frozenset(value.denominator.items())


def add(a: RationalExpression, b: RationalExpression) -> RationalExpression:
    """Return a + b."""
    if a.denominator is b.denominator or a.denominator == b.denominator:
        return RationalExpression(add_terms(a.numerator, b.numerator), a.denominator)
    return RationalExpression(
        add_terms(
            multiply_terms(a.numerator, b.denominator), multiply_terms(b.numerator, a.denominator)
        ),
        multiply_terms(a.denominator, b.denominator),
    )


def negate(a: RationalExpression) -> RationalExpression:
    """Return -a."""
    return RationalExpression({m: -c for m, c in a.numerator.items()}, a.denominator)


def multiply(a: RationalExpression, b: RationalExpression) -> RationalExpression:
    """Return a · b."""
    denominator = (
        a.denominator
        if b.denominator is UNIT
        else b.denominator
        if a.denominator is UNIT
        else multiply_terms(a.denominator, b.denominator)
    )
    return RationalExpression(multiply_terms(a.numerator, b.numerator), denominator)


def divide(a: RationalExpression, b: RationalExpression) -> RationalExpression:
    """Return a / b.

    Raises:
        NotClosed: `b` is zero.
    """
    return multiply(a, reciprocal(b))


def same_canonical_form(a: RationalExpression, b: RationalExpression) -> bool:
    """Return whether two values have the same canonical form.

    If so, they are equal wherever both are defined.
    """
    if a.denominator is b.denominator or a.denominator == b.denominator:
        left, right = a.numerator, b.numerator
    else:
        left, right = (
            multiply_terms(a.numerator, b.denominator),
            multiply_terms(b.numerator, a.denominator),
        )
    return left == right or is_zero_sum(add_terms(left, {m: -c for m, c in right.items()}))


def has_no_opaque_atoms(a: RationalExpression) -> bool:
    """Return whether a value has no opaque atoms, such as roots of sums.

    Two values without opaque atoms are equal only if they have the same canonical form.
    """
    return all(
        _is_canonical_atom(x)
        for part in (a.numerator, a.denominator)
        for mono in part
        for x, _ in mono
    )


def get_free_symbols(a: RationalExpression) -> frozenset[str]:
    """Return the names of the free symbols of a value, including those inside functions."""
    names: set[str] = set()
    waiting: list[Monomial] = [*a.numerator, *a.denominator]
    while waiting:
        for x, _ in waiting.pop():
            if isinstance(x, str):
                names.add(x)
            elif isinstance(x, tuple):
                waiting.extend(list_argument_monomials(x))
    return frozenset(names - {"π", "e", "i"})


def rename_symbols(a: RationalExpression, names: Mapping[str, str]) -> RationalExpression:
    """Rename the symbols of a value, including those inside functions.

    Args:
        a: the value.
        names: new names by old names. Other symbols keep their names.
    """

    def rename_monomial(mono: Monomial) -> Monomial:
        return frozenset((rename_atom(x), n) for x, n in mono)

    def rename_key(part: Any) -> Any:
        return tuple(frozenset((rename_monomial(m), c) for m, c in half) for half in part)

    def rename_atom(x: Atom) -> Atom:
        if isinstance(x, str):
            return names.get(x, x)
        if isinstance(x, int) or x[0] == "ln":
            return x
        if x[0] == "^":
            return ("^", rename_atom(x[1]), rename_monomial(x[2]))
        return (x[0], *map(rename_key, x[1:]))

    numerator, denominator = (
        {rename_monomial(m): c for m, c in half.items()} for half in (a.numerator, a.denominator)
    )
    return RationalExpression(numerator, UNIT if a.denominator is UNIT else denominator)


def _is_canonical_atom(x: Atom) -> bool:
    """Return whether an atom has a canonical form.

    A power b^m has one only if m is a product of symbols: 2^(ln 3) and 3^(ln 2) are equal.
    """
    if not isinstance(x, tuple) or x[0] == "ln":
        return True
    return x[0] == "^" and not any(isinstance(y, tuple) for y, _ in x[2])


def reciprocal(a: RationalExpression) -> RationalExpression:
    """Return 1 / a.

    Raises:
        NotClosed: `a` is zero.
    """
    if not a.numerator:
        raise NotClosed("division by zero")
    if len(a.numerator) > 1:
        return RationalExpression(a.denominator, a.numerator)
    ((mono, coefficient),) = a.numerator.items()
    factor, inverse = raise_monomial_to_power(mono, -1)
    scaled = {inverse: Fraction(1, 1) / coefficient * factor}
    return RationalExpression(multiply_terms(a.denominator, scaled), UNIT)


# Identities between the sine and cosine of the same argument, by sin² + cos² = 1.
#
# The parser writes the tangent and related functions as quotients of sine and cosine. After all
# powers of the sine are reduced to at most the first, a sum with a single argument is zero if and
# only if all of its coefficients are zero.

_MAX_ATOMS = 6
"""Maximum number of different sines and cosines in a sum that is tested by identities."""
_MAX_POWER = 12
"""Maximum power of a sine that is reduced."""


def is_zero_sum(terms: Polynomial) -> bool:
    """Return whether a sum of monomials is zero, perhaps by sin² + cos² = 1.

    The result is also False if the sum is too large for this test.
    """
    if not terms:
        return True
    waves = {
        x for mono in terms for x, _ in mono if isinstance(x, tuple) and x[0] in ("sin", "cos")
    }
    if not waves or len(waves) > _MAX_ATOMS:
        return False
    try:
        terms = _clear_negative_powers(terms, waves)
        for wave in waves:
            if wave[0] == "sin":
                terms = _replace_sine_squares(terms, wave, ("cos", wave[1]))
    except NotClosed:
        return False
    return not terms


def _clear_negative_powers(
    terms: Polynomial, sines_and_cosines: set[tuple[object, ...]]
) -> Polynomial:
    """Multiply a sum by powers of sines and cosines, so that none of them has a negative
    exponent.
    """
    lowest: dict[Atom, int | Fraction] = {}
    for mono in terms:
        for x, exponent in mono:
            if x in sines_and_cosines and exponent < 0:
                lowest[x] = min(lowest.get(x, 0), exponent)
    if not lowest:
        return terms
    return multiply_terms(terms, {frozenset((x, -n) for x, n in lowest.items()): 1})


def _replace_sine_squares(terms: Polynomial, sine: Atom, cosine: Atom) -> Polynomial:
    """Replace sin² by 1 - cos² in a sum, for one argument."""
    total: Polynomial = {}
    for mono, coefficient in terms.items():
        exponents = dict(mono)
        power = exponents.pop(sine, 0)
        if power < 2 or power.denominator > 1:
            total = add_terms(total, {mono: coefficient})
            continue
        if power > _MAX_POWER:
            raise NotClosed("high powers of sine are not supported")
        if power % 2:
            exponents[sine] = 1
        term: Polynomial = {frozenset(exponents.items()): coefficient}
        for _ in range(int(power) // 2):
            term = multiply_terms(term, _build_one_minus_square(cosine))
        total = add_terms(total, term)
    return total


def _build_one_minus_square(cosine: Atom) -> Polynomial:
    unit_monomial: Monomial = frozenset()
    return {unit_monomial: 1, frozenset(((cosine, 2),)): -1}
