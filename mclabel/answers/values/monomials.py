"""Monomials and polynomials, the terms and sums of terms of closed forms.

A monomial maps atoms to exponents. The exponent of a prime is a fraction in (0, 1), so that √12 is
2·3^½. The exponent of `i` is 1. A symbol has any exponent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from mclabel.answers.effort import spend_work

Atom = int | str | tuple[Any, ...]
"""A factor of a monomial: a prime, a symbol, a constant (`π`, `e`, `i`), `("ln", prime)`,
`("^", base atom, monomial)`, or the name of a function with the keys of its arguments (see
`algebra.make_hashable_key`)."""
Monomial = frozenset[tuple[Atom, int | Fraction]]
"""A product of powers: pairs of an atom and its exponent."""
Polynomial = Mapping[Monomial, int | Fraction]
"""A sum of monomials: coefficients by monomial."""

MAX_TERMS = 300
"""Maximum number of terms of a polynomial."""
MAX_BITS = 60_000
"""Maximum number of bits of a numerator or denominator. 2^4181 is exact; a tower of powers is
refused."""

NO_ATOMS: Monomial = frozenset()
"""The empty monomial, which is 1."""
UNIT: Polynomial = {NO_ATOMS: 1}
"""The polynomial 1."""


_FREE_BITS = 1 << 10
"""Number of bits up to which the size of a number adds no counted work."""


class NotClosed(Exception):
    """A text or an operation is not supported by this exact arithmetic."""


def list_argument_monomials(x: tuple[Any, ...]) -> list[Monomial]:
    """Return the monomials of the arguments of an atom that is a function, power or root."""
    if x[0] == "ln":
        return []
    if x[0] == "^":
        return [frozenset(((x[1], 1),)), x[2]]
    return [mono for part in x[1:] for half in part for mono, _ in half]


def add_terms(p: Polynomial, q: Polynomial) -> Polynomial:
    """Return the sum of two polynomials.

    Raises:
        NotClosed: the sum has too many terms.
    """
    if not q:
        return p
    if not p:
        return q
    spend_work(1 + (len(p) + len(q)) // 4)
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
    """Return the product of two polynomials.

    Raises:
        NotClosed: the product has too many terms or too large a coefficient.
    """
    if q is UNIT:
        return p
    if p is UNIT:
        return q
    if len(p) * len(q) > MAX_TERMS * 4:
        raise NotClosed("too many terms")
    spend_work(2 * len(p) * len(q))
    total: dict[Monomial, int | Fraction] = {}
    for m, a in p.items():
        for n, b in q.items():
            extra, mono = _multiply_monomials(m, n)
            new = total.get(mono, 0) + a * b * extra
            refuse_large_number(new)
            if new:
                total[mono] = new
            else:
                total.pop(mono, None)
    return total


def _multiply_monomials(m: Monomial, n: Monomial) -> tuple[int | Fraction, Monomial]:
    """Return the product of two monomials as a rational factor and the remaining monomial.

    The factor comes from whole powers of primes and of i.
    """
    if not m:
        return 1, n
    if not n:
        return 1, m
    exponents = dict(m)
    factor: int | Fraction = 1
    for base, exponent in n:
        taken, rest = _split_power(base, exponents.get(base, 0) + exponent)
        factor *= taken
        if rest:
            exponents[base] = rest
        else:
            exponents.pop(base, None)
    return factor, frozenset(exponents.items())


def _split_power(base: Atom, exponent: int | Fraction) -> tuple[int | Fraction, int | Fraction]:
    """Split a power of an atom into a rational factor and a power with a reduced exponent.

    Return the factor and the reduced exponent.
    """
    if isinstance(base, int) and (whole := math.floor(exponent)):
        return Fraction(base) ** whole, exponent - whole
    if base == "i":
        return (-1 if exponent % 4 >= 2 else 1), exponent % 2
    return 1, exponent


def raise_monomial_to_power(mono: Monomial, n: int) -> tuple[int | Fraction, Monomial]:
    """Return the n-th power of a monomial as a rational factor and the remaining monomial."""
    factor: int | Fraction = 1
    exponents: dict[Atom, int | Fraction] = {}
    for base, exponent in mono:
        if isinstance(base, int):
            refuse_large_power(base, math.floor(exponent * n))
        taken, rest = _split_power(base, exponent * n)
        factor *= taken
        if rest:
            exponents[base] = rest
    return factor, frozenset(exponents.items())


def refuse_large_power(base: int | Fraction, n: int) -> None:
    """Raise `NotClosed` if base^n has more than `MAX_BITS` bits."""
    bits = max(abs(base.numerator).bit_length(), base.denominator.bit_length())
    if base not in (1, -1) and bits * abs(n) > MAX_BITS:
        raise NotClosed("number too large")


def refuse_large_number(n: int | Fraction) -> None:
    """Raise `NotClosed` if a number has more than `MAX_BITS` bits.

    Otherwise subtract the work of arithmetic with it from the remaining work of this thread.
    """
    bits = max(n.numerator.bit_length(), n.denominator.bit_length())
    if bits > MAX_BITS:
        raise NotClosed("number too large")
    if bits > _FREE_BITS:
        spend_work((bits // _FREE_BITS) ** 2)
