"""Powers, roots and logarithms of closed forms."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from mclabel.answers.algebra import Value, add, atom, divide, inverse, key, multiply, number
from mclabel.answers.monomials import (
    NO_ATOMS,
    UNIT,
    Atom,
    NotClosed,
    check_power,
    check_size,
    power_of_monomial,
)

MAX_POWER = 40
"""Of a sum of several terms."""
MAX_RADICAND = 10**12
"""Largest part of a radicand that may be left after dividing out small primes."""


def power(base: Value, exponent: Value) -> Value:
    """The power; positive real roots, and real odd roots of negative numbers.

    Raises:
        NotClosed: too large, or of no one value.
    """
    n = exponent.rational
    if n is None:
        return _symbolic_power(base, exponent)
    if n.denominator == 1:
        return _whole_power(base, n.numerator)
    return _root(base, n)


def square(a: Value) -> Value:
    """The square, with a root of a sum undone where it stands alone."""
    if len(a.num) != 1 or a.den is not UNIT:
        return multiply(a, a)
    ((mono, coefficient),) = a.num.items()
    result = number(Fraction(coefficient) ** 2)
    for x, exponent in mono:
        twice = number(Fraction(exponent) * 2)
        if isinstance(x, tuple) and x[0] == "root":
            num, den = x[1]
            result = multiply(result, power(Value(dict(num), dict(den)), twice))
        elif isinstance(x, int):
            result = multiply(result, power(number(x), twice))
        else:
            result = multiply(result, power(atom(x), twice))
    return result


def logarithm(a: Value) -> Value:
    """The natural logarithm: of a rational as logs of primes, of e^x as x, else opaque."""
    n = a.rational
    if n is not None and n > 0:
        total = number(0)
        for prime, exponent in _factors(n.numerator) + _factors(n.denominator, sign=-1):
            total = add(total, multiply(number(exponent), atom(("ln", prime))))
        return total
    if len(a.num) == 1 and a.den is UNIT:
        ((mono, coefficient),) = a.num.items()
        if coefficient == 1 and len(mono) == 1:
            ((base, n_of_e),) = mono
            if base == "e":
                return number(Fraction(n_of_e))
    return atom(("log", key(a)))


def _whole_power(base: Value, n: int) -> Value:
    if n < 0:
        return _whole_power(inverse(base), -n)
    if n == 0:
        if not base.num:
            raise NotClosed("zero to the power of zero")
        return number(1)
    if len(base.num) == 1 and base.den is UNIT:
        ((mono, coefficient),) = base.num.items()
        check_power(coefficient, n)
        factor, raised = power_of_monomial(mono, n)
        check_size(factor)
        return Value({raised: coefficient**n * factor}, UNIT)
    if n > MAX_POWER:
        raise NotClosed("power of a sum too high")
    result = base
    for _ in range(n - 1):
        result = multiply(result, base)
    return result


def _root(base: Value, exponent: Fraction) -> Value:
    if not base.num:
        if exponent > 0:
            return base
        raise NotClosed("division by zero")
    if base.den is not UNIT:
        return divide(
            _root(Value(base.num, UNIT), exponent), _root(Value(base.den, UNIT), exponent)
        )
    if len(base.num) > 1:
        return _root_of_sum(base, exponent)
    ((mono, coefficient),) = base.num.items()
    exponents: dict[Atom, int | Fraction] = {}
    for x, e in mono:
        if x == "i" or (not isinstance(x, int) and x not in ("π", "e") and e % 2 == 0):
            raise NotClosed("a root of several values")
        exponents[x] = e * exponent
    result = _rational_root(Fraction(coefficient), exponent)
    for x, e in exponents.items():
        if isinstance(x, int):
            result = multiply(result, _prime_power(x, Fraction(e)))
        else:
            result = multiply(result, Value({frozenset(((x, e),)): 1}, UNIT))
    return result


def _root_of_sum(base: Value, exponent: Fraction) -> Value:
    """An opaque atom of the sum without its rational content, so that √(4a+4b) is 2√(a+b)."""
    coefficients = [Fraction(c) for c in base.num.values()]
    content = Fraction(
        math.gcd(*(c.numerator for c in coefficients)),
        math.lcm(*(c.denominator for c in coefficients)),
    )
    rest = Value({m: Fraction(c) / content for m, c in base.num.items()}, UNIT)
    root = Value({frozenset(((("root", key(rest)), exponent),)): 1}, UNIT)
    return multiply(_rational_root(content, exponent), root)


def _rational_root(n: Fraction, exponent: Fraction) -> Value:
    if n < 0:
        if exponent.denominator % 2:
            sign = -1 if exponent.numerator % 2 else 1
            return multiply(number(sign), _rational_root(-n, exponent))
        if exponent.denominator == 2:
            return multiply(
                _whole_power(atom("i"), exponent.numerator), _rational_root(-n, exponent)
            )
        raise NotClosed("even root of a negative number")
    result = number(1)
    for prime, e in _factors(n.numerator) + _factors(n.denominator, sign=-1):
        result = multiply(result, _prime_power(prime, e * exponent))
    return result


def _prime_power(prime: int, exponent: Fraction) -> Value:
    whole = math.floor(exponent)
    check_power(prime, whole)
    rest = exponent - whole
    mono = frozenset(((prime, rest),)) if rest else NO_ATOMS
    return Value({mono: Fraction(prime) ** whole}, UNIT)


def _symbolic_power(base: Value, exponent: Value) -> Value:
    """b^(c·m + …) as atoms b^m to the power c, so that (e^x)² and e^(2x) are one."""
    if exponent.den is not UNIT:
        raise NotClosed("a quotient in an exponent")
    if len(base.num) != 1 or base.den is not UNIT:
        return atom(("power", key(base), key(exponent)))
    ((mono, coefficient),) = base.num.items()
    n = Fraction(coefficient)
    if n <= 0 or any(not isinstance(x, str) or x == "i" for x, _ in mono):
        return atom(("power", key(base), key(exponent)))
    bases = [*mono, *_factors(n.numerator), *_factors(n.denominator, sign=-1)]
    result = number(1)
    for m, c in exponent.num.items():
        if ("i", 1) in m:
            return atom(("power", key(base), key(exponent)))
        for x, e in bases:
            if not m:
                piece = power(number(x) if isinstance(x, int) else atom(x), number(Fraction(e * c)))
            else:
                piece = Value({frozenset(((("^", x, m), e * c),)): 1}, UNIT)
            result = multiply(result, piece)
    return result


@lru_cache(maxsize=4096)
def _factors(n: int, sign: int = 1) -> tuple[tuple[int, int], ...]:
    """Prime factors of a positive integer with their exponents times `sign`."""
    found = []
    prime = 2
    while prime * prime <= n and prime < 1000:
        count = 0
        while n % prime == 0:
            n //= prime
            count += 1
        if count:
            found.append((prime, sign * count))
        prime += 1 if prime == 2 else 2
    if n > 1:
        if n >= MAX_RADICAND or (prime >= 1000 and not _is_prime(n)):
            raise NotClosed("a radicand that is hard to factor")
        found.append((n, sign))
    return tuple(found)


def _is_prime(n: int) -> bool:
    """Miller-Rabin, exact below 3.4e14 (Jaeschke 1993)."""
    if n < 1_000_000:
        return True
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    for base in (2, 3, 5, 7, 11, 13, 17):
        x = pow(base, (n - 1) >> twos, n)
        if x not in (1, n - 1) and all(pow(x, 2**r, n) != n - 1 for r in range(1, twos)):
            return False
    return True
