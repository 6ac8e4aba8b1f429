"""Square and cube roots of a + b√d that are sums of plain radicals themselves.

√(7 + 4√3) is 2 + √3 and ∛(2 + √5) is (1 + √5)/2. With the norm n = a² - b²d: a square root is
√((a + √n)/2) ± √((a - √n)/2) where √n is rational; a cube root is p + q√d, where m = ∛n is
rational, 4p³ - 3mp = a and q²d = p² - m. Every cube root is checked by multiplying it out.
"""

from __future__ import annotations

import math
from fractions import Fraction

from mclabel.answers.values.algebra import Value
from mclabel.answers.values.monomials import UNIT

_MAX_SIZE = 10**12
"""Of the numerators and denominators of a, b and d."""


def split_surd(value: Value) -> tuple[Fraction, Fraction, Fraction] | None:
    """(a, b, d) of a + b√d with rational parts, d > 1 squarefree; None of anything else."""
    if value.den is not UNIT or len(value.num) != 2:
        return None
    a = b = Fraction(0)
    d = 1
    for mono, coefficient in value.num.items():
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


def square_root_parts(a: Fraction, b: Fraction, d: Fraction) -> tuple[Fraction, Fraction] | None:
    """Radicands r > s of √(a + b√d) = √r ± √s, by the sign of b; None without such."""
    norm = rational_root(a * a - b * b * d, 2)
    if norm is None or a <= 0:
        return None
    return (a + norm) / 2, (a - norm) / 2


def cube_root_parts(a: Fraction, b: Fraction, d: Fraction) -> tuple[Fraction, Fraction] | None:
    """P and q of ∛(a + b√d) = p + q√d; None without such."""
    norm = rational_root(a * a - b * b * d, 3)
    if norm is None:
        return None
    whole = float(a) + float(b) * math.sqrt(d)
    size = math.copysign(abs(whole) ** (1 / 3), whole)
    if not size:
        return None
    p = Fraction((size + float(norm) / size) / 2).limit_denominator(10**6)
    square = (p * p - norm) / d
    q = rational_root(square, 2)
    if q is None:
        return None
    for signed in (q, -q):
        if p**3 + 3 * p * signed**2 * d == a and signed * (3 * p * p + signed**2 * d) == b:
            return p, signed
    return None


def rational_root(n: Fraction, degree: int) -> Fraction | None:
    """The real root of a rational where it is rational."""
    if n < 0:
        if degree % 2 == 0:
            return None
        opposite = rational_root(-n, degree)
        return None if opposite is None else -opposite
    top, bottom = _whole_root(n.numerator, degree), _whole_root(n.denominator, degree)
    return None if top is None or bottom is None else Fraction(top, bottom)


def _whole_root(n: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(n)
        return root if root * root == n else None
    root = round(n ** (1 / degree)) if n < 2**100 else -1
    return next((r for r in (root - 1, root, root + 1) if r >= 0 and r**degree == n), None)
