"""Powers, roots and logarithms of closed forms.

An opaque atom is a factor that stands for a root or logarithm that is not evaluated.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from mclabel.answers.effort import spend_work
from mclabel.answers.values.algebra import (
    RationalExpression,
    add,
    divide,
    make_atom_value,
    make_hashable_key,
    make_number_value,
    multiply,
    reciprocal,
)
from mclabel.answers.values.monomials import (
    MAX_TERMS,
    NO_ATOMS,
    UNIT,
    Atom,
    NotClosed,
    raise_monomial_to_power,
    refuse_large_number,
    refuse_large_power,
)

BARE_LOG = ("bare log",)
"""Atom for the natural logarithm of the base of `log` without a base, which is 10 or e."""
MAX_POWER = 40
"""Largest exponent to which a sum of several terms is expanded."""
MAX_RADICAND = 10**12
"""Maximum of the part of a number that remains after its small prime factors are divided out. A
number with a larger part is not factored."""


def power(base: RationalExpression, exponent: RationalExpression) -> RationalExpression:
    """Return base^exponent.

    A root of a positive number is the positive real root, and an odd root of a negative number is
    the real root.

    Raises:
        NotClosed: the power is too large, or is not unique.
    """
    n = exponent.rational
    if n is None:
        return _expand_symbolic_power(base, exponent)
    if n.denominator == 1:
        return _compute_integer_power(base, n.numerator)
    return _take_root(base, n)


def square(a: RationalExpression) -> RationalExpression:
    """Return a². If a root of a sum is a factor of a, its square is the radicand."""
    if len(a.numerator) != 1 or a.denominator is not UNIT:
        return multiply(a, a)
    ((mono, coefficient),) = a.numerator.items()
    result = make_number_value(Fraction(coefficient) ** 2)
    for x, exponent in mono:
        twice = make_number_value(Fraction(exponent) * 2)
        if isinstance(x, tuple) and x[0] == "root":
            numerator, denominator = x[1]
            result = multiply(
                result, power(RationalExpression(dict(numerator), dict(denominator)), twice)
            )
        else:
            base = make_number_value(x) if isinstance(x, int) else make_atom_value(x)
            result = multiply(result, power(base, twice))
    return result


def logarithm(a: RationalExpression) -> RationalExpression:
    """Return the natural logarithm of a value.

    The logarithm of a rational is a sum of logarithms of primes, and the logarithm of e^x is x. Any
    other logarithm is an opaque atom.
    """
    n = a.rational
    if n is not None and n > 0:
        total = make_number_value(0)
        for prime, exponent in _factor_integer(n.numerator) + _factor_integer(
            n.denominator, sign=-1
        ):
            total = add(
                total, multiply(make_number_value(exponent), make_atom_value(("ln", prime)))
            )
        return total
    if len(a.numerator) == 1 and a.denominator is UNIT:
        ((mono, coefficient),) = a.numerator.items()
        factor = Fraction(coefficient)
        if (
            factor > 0
            and mono
            and all(x == "e" or (isinstance(x, tuple) and x[:2] == ("^", "e")) for x, _ in mono)
        ):
            total = logarithm(make_number_value(factor))
            for x, times in mono:
                logged = (
                    RationalExpression({x[2]: 1}, UNIT)
                    if isinstance(x, tuple)
                    else make_number_value(1)
                )
                total = add(total, multiply(make_number_value(Fraction(times)), logged))
            return total
    return make_atom_value(("log", make_hashable_key(a)))


def _compute_integer_power(base: RationalExpression, n: int) -> RationalExpression:
    if n < 0:
        return _compute_integer_power(reciprocal(base), -n)
    if n == 0:
        if not base.numerator:
            raise NotClosed("zero to the power of zero")
        return make_number_value(1)
    if len(base.numerator) == 1 and base.denominator is UNIT:
        ((mono, coefficient),) = base.numerator.items()
        refuse_large_power(coefficient, n)
        factor, raised = raise_monomial_to_power(mono, n)
        refuse_large_number(factor)
        return RationalExpression({raised: coefficient**n * factor}, UNIT)
    if base.denominator is not UNIT:
        numerator, denominator = (
            RationalExpression(base.numerator, UNIT),
            RationalExpression(base.denominator, UNIT),
        )
        return divide(_compute_integer_power(numerator, n), _compute_integer_power(denominator, n))
    if n > MAX_POWER or math.comb(n + len(base.numerator) - 1, n) > MAX_TERMS:
        return make_atom_value(
            ("power", make_hashable_key(base), make_hashable_key(make_number_value(n)))
        )
    result = base
    for _ in range(n - 1):
        result = multiply(result, base)
    return result


def _take_root(base: RationalExpression, exponent: Fraction) -> RationalExpression:
    if not base.numerator:
        if exponent > 0:
            return base
        raise NotClosed("division by zero")
    if base.denominator is not UNIT:
        return divide(
            _take_root(RationalExpression(base.numerator, UNIT), exponent),
            _take_root(RationalExpression(base.denominator, UNIT), exponent),
        )
    if len(base.numerator) > 1:
        return _take_root_of_sum(base, exponent)
    ((mono, coefficient),) = base.numerator.items()
    exponents: dict[Atom, int | Fraction] = {}
    for x, e in mono:
        if x == "i" or (not isinstance(x, int) and x not in ("π", "e") and e % 2 == 0):
            raise NotClosed("a root of several values")
        exponents[x] = e * exponent
    result = _compute_rational_power(Fraction(coefficient), exponent)
    for x, e in exponents.items():
        factor = (
            _compute_prime_power(x, Fraction(e))
            if isinstance(x, int)
            else RationalExpression({frozenset(((x, e),)): 1}, UNIT)
        )
        result = multiply(result, factor)
    return result


def _take_root_of_sum(base: RationalExpression, exponent: Fraction) -> RationalExpression:
    """Return a root of a sum as a sum of radicals if possible, otherwise as an opaque atom.

    A rational factor of the sum is taken out of the root, so that √(4a+4b) is 2√(a+b).
    """
    coefficients = [Fraction(c) for c in base.numerator.values()]
    content = Fraction(
        math.gcd(*(c.numerator for c in coefficients)),
        math.lcm(*(c.denominator for c in coefficients)),
    )
    rest = RationalExpression({m: Fraction(c) / content for m, c in base.numerator.items()}, UNIT)
    if len(base.numerator) == 2 and abs(exponent) in (Fraction(1, 2), Fraction(1, 3)):
        plain = denest_root(base, exponent.denominator)
        if plain is not None:
            return plain if exponent > 0 else reciprocal(plain)
    root = RationalExpression(
        {frozenset(((("root", make_hashable_key(rest)), exponent),)): 1}, UNIT
    )
    return multiply(_compute_rational_power(content, exponent), root)


def denest_root(base: RationalExpression, degree: int) -> RationalExpression | None:
    """Return the square or cube root of a + b√d as a sum of radicals of rationals; None if it is
    not such a sum.

    Args:
        base: the radicand.
        degree: 2 or 3.
    """
    surd = split_surd(base)
    if surd is None:
        return None
    a, b, d = surd
    if degree == 3:
        parts = denest_cube_root(a, b, d)
        if parts is None:
            return None
        return add(
            make_number_value(parts[0]),
            multiply(make_number_value(parts[1]), _compute_rational_power(d, Fraction(1, 2))),
        )
    parts = denest_square_root(a, b, d)
    if parts is None or parts[1] < 0:
        return None
    large, small = (_compute_rational_power(part, Fraction(1, 2)) for part in parts)
    return add(large, small if b > 0 else multiply(make_number_value(-1), small))


def _compute_rational_power(n: Fraction, exponent: Fraction) -> RationalExpression:
    if n < 0:
        if exponent.denominator % 2:
            sign = -1 if exponent.numerator % 2 else 1
            return multiply(make_number_value(sign), _compute_rational_power(-n, exponent))
        if exponent.denominator == 2:
            return multiply(
                _compute_integer_power(make_atom_value("i"), exponent.numerator),
                _compute_rational_power(-n, exponent),
            )
        raise NotClosed("even root of a negative number")
    result = make_number_value(1)
    for prime, e in _factor_integer(n.numerator) + _factor_integer(n.denominator, sign=-1):
        result = multiply(result, _compute_prime_power(prime, e * exponent))
    return result


def _compute_prime_power(prime: int, exponent: Fraction) -> RationalExpression:
    whole = math.floor(exponent)
    refuse_large_power(prime, whole)
    rest = exponent - whole
    mono = frozenset(((prime, rest),)) if rest else NO_ATOMS
    return RationalExpression({mono: Fraction(prime) ** whole}, UNIT)


def _expand_symbolic_power(
    base: RationalExpression, exponent: RationalExpression
) -> RationalExpression:
    """Return b^(c·m + …) as a product of atoms b^m to the power c, so that (e^x)² equals e^(2x)."""
    if exponent.denominator is not UNIT:
        return make_atom_value(("power", make_hashable_key(base), make_hashable_key(exponent)))
    if any(
        isinstance(x, tuple) and x[0] in ("ln", "log")
        for mono in exponent.numerator
        for x, _ in mono
    ):
        undone = _eliminate_logarithms(base, exponent)
        return (
            make_atom_value(("power", make_hashable_key(base), make_hashable_key(exponent)))
            if undone is None
            else undone
        )
    if len(base.numerator) != 1 or base.denominator is not UNIT:
        return make_atom_value(("power", make_hashable_key(base), make_hashable_key(exponent)))
    ((mono, coefficient),) = base.numerator.items()
    n = Fraction(coefficient)
    if n <= 0 or any(not isinstance(x, str) or x == "i" for x, _ in mono):
        return make_atom_value(("power", make_hashable_key(base), make_hashable_key(exponent)))
    bases = [*mono, *_factor_integer(n.numerator), *_factor_integer(n.denominator, sign=-1)]
    result = make_number_value(1)
    for m, c in exponent.numerator.items():
        if ("i", 1) in m:
            return make_atom_value(("power", make_hashable_key(base), make_hashable_key(exponent)))
        for x, e in bases:
            if not m:
                piece = power(
                    make_number_value(x) if isinstance(x, int) else make_atom_value(x),
                    make_number_value(Fraction(e * c)),
                )
            else:
                piece = RationalExpression({frozenset(((("^", x, m), e * c),)): 1}, UNIT)
            result = multiply(result, piece)
    return result


def _eliminate_logarithms(
    base: RationalExpression, exponent: RationalExpression
) -> RationalExpression | None:
    """Return b^E without logarithms if E·ln b is a sum of multiples of logarithms; None otherwise.

    3^(log_3 5) becomes 5, 9^(log_3 5) becomes 25, and e^(2 ln x) becomes x².
    """
    n = base.rational
    if n == 10 and any(x == BARE_LOG for mono in exponent.numerator for x, _ in mono):
        total = multiply(exponent, make_atom_value(BARE_LOG))
    elif base.numerator == {frozenset((("e", 1),)): 1} and base.denominator is UNIT:
        total = exponent
    elif n is not None and n > 0:
        total = multiply(exponent, logarithm(base))
    else:
        return None
    result = make_number_value(1)
    for mono, coefficient in total.numerator.items():
        c = make_number_value(Fraction(coefficient))
        if not mono:
            result = multiply(result, power(make_atom_value("e"), c))
            continue
        ((x, once), *more) = mono
        if more or once != 1 or not isinstance(x, tuple) or x[0] not in ("ln", "log"):
            return None
        inner = (
            make_number_value(x[1])
            if x[0] == "ln"
            else RationalExpression(dict(x[1][0]), dict(x[1][1]))
        )
        # A denominator of 1 becomes the object `UNIT` itself.
        result = multiply(
            result,
            power(
                RationalExpression(inner.numerator, UNIT) if inner.denominator == UNIT else inner, c
            ),
        )
    return result


def _factor_integer(n: int, sign: int = 1) -> tuple[tuple[int, int], ...]:
    """Return the prime factors of a positive integer with their exponents times `sign`."""
    spend_work((n.bit_length() // 128) ** 2)
    return _search_prime_factors(n, sign)


@lru_cache(maxsize=4096)
def _search_prime_factors(n: int, sign: int) -> tuple[tuple[int, int], ...]:
    factors = []
    prime = 2
    while prime * prime <= n and prime < 1000:
        count = 0
        while n % prime == 0:
            n //= prime
            count += 1
        if count:
            factors.append((prime, sign * count))
        prime += 1 if prime == 2 else 2
    if n > 1:
        if n >= MAX_RADICAND or (prime >= 1000 and not _is_prime(n)):
            raise NotClosed("a radicand that is hard to factor")
        factors.append((n, sign))
    return tuple(factors)


def _is_prime(n: int) -> bool:
    """Return whether a number without prime factors below 1000 is prime.

    The Miller-Rabin test is exact below 3.4e14 (Jaeschke 1993).
    """
    if n < 1_000_000:
        return True
    twos = ((n - 1) & -(n - 1)).bit_length() - 1
    for base in (2, 3, 5, 7, 11, 13, 17):
        x = pow(base, (n - 1) >> twos, n)
        if x not in (1, n - 1) and all(pow(x, 2**r, n) != n - 1 for r in range(1, twos)):
            return False
    return True


# Square and cube roots of a + b√d that are sums of radicals of rationals.
#
# For example, √(7 + 4√3) is 2 + √3, and ∛(2 + √5) is (1 + √5)/2. The norm is n = a² - b²d. If √n
# is rational, the square root is √((a + √n)/2) ± √((a - √n)/2). If m = ∛n is rational, the cube
# root may be p + q√d with 4p³ - 3mp = a and q²d = p² - m. Every cube root is verified by cubing.

_MAX_SIZE = 10**12
"""Largest supported numerator or denominator of a, b and d in a + b√d."""


def split_surd(value: RationalExpression) -> tuple[Fraction, Fraction, Fraction] | None:
    """Return (a, b, d) if a value is a + b√d with rational a and b and a squarefree d > 1.

    Return None for any other value.
    """
    if value.denominator is not UNIT or len(value.numerator) != 2:
        return None
    a = b = Fraction(0)
    d = 1
    for mono, coefficient in value.numerator.items():
        if not mono:
            a = Fraction(coefficient)
            continue
        if any(not isinstance(x, int) or n != Fraction(1, 2) for x, n in mono):
            return None
        b, d = Fraction(coefficient), math.prod(x for x, _ in mono if isinstance(x, int))
    sizes = (a.numerator, a.denominator, b.numerator, b.denominator, d)
    if not a or not b or any(abs(size) > _MAX_SIZE for size in sizes):
        return None
    return a, b, Fraction(d)


def denest_square_root(a: Fraction, b: Fraction, d: Fraction) -> tuple[Fraction, Fraction] | None:
    """Return rational r > s with √(a + b√d) = √r ± √s, where the sign is that of b.

    Return None if there are none.
    """
    norm = find_rational_root(a * a - b * b * d, 2)
    return None if norm is None or a <= 0 else ((a + norm) / 2, (a - norm) / 2)


def denest_cube_root(a: Fraction, b: Fraction, d: Fraction) -> tuple[Fraction, Fraction] | None:
    """Return rational p and q with ∛(a + b√d) = p + q√d; None if there are none."""
    norm = find_rational_root(a * a - b * b * d, 3)
    if norm is None:
        return None
    whole = float(a) + float(b) * math.sqrt(d)
    size = math.copysign(abs(whole) ** (1 / 3), whole)
    if not size:
        return None
    p = Fraction((size + float(norm) / size) / 2).limit_denominator(10**6)
    square = (p * p - norm) / d
    q = find_rational_root(square, 2)
    if q is None:
        return None
    for signed in (q, -q):
        if p**3 + 3 * p * signed**2 * d == a and signed * (3 * p * p + signed**2 * d) == b:
            return p, signed
    return None


def find_rational_root(n: Fraction, degree: int) -> Fraction | None:
    """Return the real root of a rational number if it is rational; None otherwise."""
    if n < 0:
        if degree % 2 == 0:
            return None
        opposite = find_rational_root(-n, degree)
        return None if opposite is None else -opposite
    top, bottom = _find_integer_root(n.numerator, degree), _find_integer_root(n.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _find_integer_root(n: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(n)
        return root if root * root == n else None
    root = round(n ** (1 / degree)) if n < 2**100 else -1
    return next((r for r in (root - 1, root, root + 1) if r >= 0 and r**degree == n), None)
