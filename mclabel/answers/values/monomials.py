"""Monomials and sums of them: the terms that closed forms are made of.

A monomial maps atoms to exponents: a prime has a fractional exponent in (0, 1), so that √12 is
2·3^½; `i` has 1; a symbol has any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from mclabel.answers.effort import spend

Atom = int | str | tuple[Any, ...]
"""A prime; a symbol or constant (`π`, `e`, `i`); `("ln", prime)`; `("^", base atom, monomial)`; or
a function's name and the keys of its arguments, where equal keys are equal arguments."""
Monomial = frozenset[tuple[Atom, int | Fraction]]
Polynomial = Mapping[Monomial, int | Fraction]

MAX_TERMS = 300
MAX_BITS = 60_000
"""Largest number of bits of a number: 2^4181 is exact, a tower is refused."""

NO_ATOMS: Monomial = frozenset()
UNIT: Polynomial = {NO_ATOMS: 1}


_FREE_BITS = 1 << 10
"""Number of bits up to which arithmetic costs no effort that is counted."""


class NotClosed(Exception):
    """A text or an operation that this arithmetic does not cover."""


def monomials_within(x: tuple[Any, ...]) -> list[Monomial]:
    """Return the monomials that a function's atom is made of."""
    if x[0] == "ln":
        return []
    if x[0] == "^":
        return [frozenset(((x[1], 1),)), x[2]]
    return [mono for part in x[1:] for half in part for mono, _ in half]


def add_terms(p: Polynomial, q: Polynomial) -> Polynomial:
    """Return the sum.

    Raises:
        NotClosed: too many terms.
    """
    if not q:
        return p
    if not p:
        return q
    spend(1 + (len(p) + len(q)) // 4)
    total = dict(p)
    for mono, coefficient in q.items():
        new = total.get(mono, 0) + coefficient
        if new:
            total[mono] = new
        else:
            del total[mono]
    if len(total) > MAX_TERMS:
        raise NotClosed("too many terms")
    return total


def multiply_terms(p: Polynomial, q: Polynomial) -> Polynomial:
    """Return the product.

    Raises:
        NotClosed: too many terms, or too large a coefficient.
    """
    if q is UNIT:
        return p
    if p is UNIT:
        return q
    if len(p) * len(q) > MAX_TERMS * 4:
        raise NotClosed("too many terms")
    spend(2 * len(p) * len(q))
    total: dict[Monomial, int | Fraction] = {}
    for m, a in p.items():
        for n, b in q.items():
            extra, mono = _product(m, n)
            new = total.get(mono, 0) + a * b * extra
            check_size(new)
            if new:
                total[mono] = new
            else:
                total.pop(mono, None)
    return total


def _product(m: Monomial, n: Monomial) -> tuple[int | Fraction, Monomial]:
    """Return the rational factor that whole powers of primes and of i leave, and the monomial."""
    if not m:
        return 1, n
    if not n:
        return 1, m
    exponents = dict(m)
    factor: int | Fraction = 1
    for base, exponent in n:
        taken, rest = _reduced(base, exponents.get(base, 0) + exponent)
        factor *= taken
        if rest:
            exponents[base] = rest
        else:
            exponents.pop(base, None)
    return factor, frozenset(exponents.items())


def _reduced(base: Atom, exponent: int | Fraction) -> tuple[int | Fraction, int | Fraction]:
    """Return the rational factor in the power of an atom, and the exponent that remains."""
    if isinstance(base, int) and (whole := math.floor(exponent)):
        return Fraction(base) ** whole, exponent - whole
    if base == "i":
        return (-1 if exponent % 4 >= 2 else 1), exponent % 2
    return 1, exponent


def power_of_monomial(mono: Monomial, n: int) -> tuple[int | Fraction, Monomial]:
    """Return the rational factor that is left, and the monomial, of a whole power."""
    factor: int | Fraction = 1
    exponents: dict[Atom, int | Fraction] = {}
    for base, exponent in mono:
        if isinstance(base, int):
            check_power(base, math.floor(exponent * n))
        taken, rest = _reduced(base, exponent * n)
        factor *= taken
        if rest:
            exponents[base] = rest
    return factor, frozenset(exponents.items())


def check_power(base: int | Fraction, n: int) -> None:
    """Refuse a power of a number that is too large to be written out."""
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if base not in (1, -1) and bits * abs(n) > MAX_BITS:
        raise NotClosed("number too large")


def check_size(n: int | Fraction) -> None:
    """Refuse a number that is too large to go on with."""
    bits = max(n.numerator.bit_length(), n.denominator.bit_length())
    if bits > MAX_BITS:
        raise NotClosed("number too large")
    if bits > _FREE_BITS:
        spend((bits // _FREE_BITS) ** 2)
