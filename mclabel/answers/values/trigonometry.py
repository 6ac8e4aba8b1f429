"""Identities between sine and cosine of one argument, by sin² + cos² = 1.

Tangent and the others are written as quotients of the two when they are read. A sum whose sines
have been reduced to the first power is zero exactly if all its coefficients are, for one argument.
"""

from __future__ import annotations

from fractions import Fraction

from mclabel.answers.values.monomials import (
    Atom,
    Monomial,
    NotClosed,
    Polynomial,
    add_terms,
    multiply_terms,
)

_MAX_ATOMS = 6
_MAX_POWER = 12


def vanishes(terms: Polynomial) -> bool:
    """Whether a sum of monomials is zero, as it stands or by sin² + cos² = 1.

    False where it is not seen to be: of high powers, or of too many terms.
    """
    if not terms:
        return True
    waves = {
        x for mono in terms for x, _ in mono if isinstance(x, tuple) and x[0] in ("sin", "cos")
    }
    if not waves or len(waves) > _MAX_ATOMS:
        return False
    try:
        terms = _cleared(terms, waves)
        for wave in waves:
            if wave[0] == "sin":
                terms = _reduced(terms, wave, ("cos", wave[1]))
    except NotClosed:
        return False
    return not terms


def _cleared(terms: Polynomial, waves: set[tuple[object, ...]]) -> Polynomial:
    """The sum times what makes all powers of the waves positive."""
    lowest: dict[Atom, int | Fraction] = {}
    for mono in terms:
        for x, exponent in mono:
            if x in waves and exponent < 0:
                lowest[x] = min(lowest.get(x, 0), exponent)
    if not lowest:
        return terms
    return multiply_terms(terms, {frozenset((x, -n) for x, n in lowest.items()): 1})


def _reduced(terms: Polynomial, sine: Atom, cosine: Atom) -> Polynomial:
    """The sum without squares of one sine."""
    total: Polynomial = {}
    for mono, coefficient in terms.items():
        exponents = dict(mono)
        power = exponents.pop(sine, 0)
        if power < 2 or power.denominator > 1:
            total = add_terms(total, {mono: coefficient})
            continue
        if power > _MAX_POWER:
            raise NotClosed("a high power of a sine")
        if power % 2:
            exponents[sine] = 1
        term: Polynomial = {frozenset(exponents.items()): coefficient}
        for _ in range(int(power) // 2):
            term = multiply_terms(term, _one_minus_square(cosine))
        total = add_terms(total, term)
    return total


def _one_minus_square(cosine: Atom) -> Polynomial:
    one: Monomial = frozenset()
    return {one: 1, frozenset(((cosine, 2),)): -1}
