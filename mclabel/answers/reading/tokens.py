r"""Splits a formula into tokens, and evaluates operators such as gcd and finite sums.

Operators (gcd, lcm, max, min, mod, finite sums and products) are evaluated if their arguments are
exact numbers. Limits on the work are checked before the evaluation. A sum whose upper bound is a
symbol, such as `\sum_{k=1}^{n} k^2`, becomes a polynomial in this symbol.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression, make_atom_value, make_number_value
from mclabel.answers.values.monomials import UNIT, NotClosed, Polynomial
from mclabel.answers.values.powers import power

_TOKEN = re.compile(r"(\d++(?:\.\d++)?|\.\d++)|\\([A-Za-z]++)|([A-Za-z]++'*+)|(\S)")
FUNCTIONS = frozenset(
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln lg exp sqrt cbrt "
    "abs cis".split()
)
GREEK = frozenset(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega ell hbar".split()
)
_SPELT = {"pi": "π", "theta": "theta", "infty": "∞", "infinity": "∞"}
_NO_PRODUCT = frozenset("and or not lim sum inf sup det base per the".split())
_MAX_WORD = 3
"""Maximum number of consecutive letters that are a product of variables. More letters are a
word."""


class FormulaTokens:
    """The tokens of a formula and the index `at` of the next token."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.spaced: list[bool] = []
        """True for each token that follows white space."""
        for match in _TOKEN.finditer(text):
            digits, command, letters, sign = match.groups()
            space = text[max(0, match.start() - 1)].isspace()
            if letters:
                self._append_letters(letters, space)
                continue
            self.tokens.append(digits or (f"\\{command}" if command else sign))
            self.spaced.append(space)
        self.at = 0

    def _append_letters(self, letters: str, has_space_before: bool) -> None:
        """Append the tokens of a run of letters: a function, a constant, or single variables.

        If `has_space_before` is true, white space precedes the letters.
        """
        if self.tokens[-1:] == ["_"] or self.tokens[-2:] == ["_", "{"] or letters[1:2] == "'":
            self.tokens.append(letters)
            self.spaced.append(has_space_before)
            return
        if letters in EXTREMA or letters == "mod":
            self.tokens.append(f"\\{letters}")
            self.spaced.append(has_space_before)
            return
        if letters in FUNCTIONS or letters in _SPELT or letters in GREEK:
            self.tokens.append(_SPELT.get(letters, f"\\{letters}"))
            self.spaced.append(has_space_before)
            return
        for name in ("sqrt", "sin", "cos", "tan", "log", "ln"):
            start = letters.find(name)
            if 0 <= start <= 1 and len(letters) - len(name) - start <= 1:
                pieces = (*letters[:start], f"\\{name}", *letters[start + len(name) :])
                self.tokens.extend(pieces)
                self.spaced.extend([False] * len(pieces))
                return
        if len(letters) > _MAX_WORD or letters.lower() in _NO_PRODUCT or "'" in letters:
            raise NotClosed("a word is not a formula")
        self.tokens.extend(letters)
        self.spaced.extend([has_space_before] + [False] * (len(letters) - 1))

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise NotClosed("the formula ends early")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise NotClosed(f"{token} is missing")

    def read_primes(self) -> str:
        r"""Read the primes after a name, also those written as a power, as in `x^{\prime}`."""
        if self.peek() == "'":
            self.at += 1
            return "'" + self.read_primes()
        if self.peek() != "^":
            return ""
        group = self.tokens[self.at + 1 : self.at + 6]
        end = group.index("}") if group[:1] == ["{"] and "}" in group else 1
        inside = group[1:end] if group[:1] == ["{"] else group[:1]
        if not inside or any(token != "'" for token in inside):
            return ""
        self.at += 1 + (end + 1 if group[0] == "{" else 1)
        return "'" * len(inside)

    def read_subscript(self) -> str:
        if self.peek() != "{":
            return self.next().lstrip("\\")
        self.at += 1
        parts = []
        while (token := self.next()) != "}":
            token = token.lstrip("\\")
            if not (token.isalnum() or token in ",+-*"):
                raise NotClosed("a subscript that is a formula is not supported")
            parts.append(token)
        return "".join(parts)

    def read_group(self) -> list[str]:
        """Read a group in braces and return the tokens inside."""
        self.expect("{")
        start, depth = self.at, 1
        while depth:
            token = self.next()
            depth += (token == "{") - (token == "}")
        return self.tokens[start : self.at - 1]

    def read_letters_under_accent(self) -> str:
        """Read the letters under an accent: a group, or the letters up to a space."""
        if self.peek() == "{":
            letters = self.read_group()
        else:
            letters = [self.next()]
            while (token := self.peek()) and token.isalpha() and not self.spaced[self.at]:
                letters.append(self.next())
        if not letters or not all(x.lstrip("\\").isalpha() for x in letters):
            raise NotClosed("an accent over a formula is not supported")
        return "".join(letters)


EXTREMA = frozenset(("gcd", "lcm", "max", "min"))
MAX_TERMS = 400
"""Maximum number of terms of a sum or a product that is evaluated term by term."""
MAX_STEPS = 4_000
"""Maximum product of the number of terms and the number of tokens per term."""
MAX_DEGREE = 12
"""Maximum degree of a polynomial in a sum whose upper bound is a symbol."""


def compute_gcd_or_extremum(name: str, values: list[RationalExpression]) -> RationalExpression:
    """Return the gcd, lcm, max or min of rational numbers.

    Raises:
        NotClosed: an argument is not a rational number, or not an integer for gcd and lcm.
    """
    numbers = [value.rational for value in values]
    exact = [n for n in numbers if n is not None]
    if not exact or len(exact) < len(numbers):
        raise NotClosed(f"{name} is supported only for numbers")
    if name in ("max", "min"):
        return make_number_value(max(exact) if name == "max" else min(exact))
    whole = [n.numerator for n in exact if n.denominator == 1]
    if len(whole) < len(exact):
        raise NotClosed(f"{name} is supported only for integers")
    return make_number_value(math.gcd(*whole) if name == "gcd" else math.lcm(*whole))


def compute_remainder(left: RationalExpression, right: RationalExpression) -> RationalExpression:
    """Return `a mod b`.

    Raises:
        NotClosed: a or b is not an integer, or b is not positive.
    """
    a, b = left.rational, right.rational
    if a is None or b is None or a.denominator != 1 or b.denominator != 1 or b <= 0:
        raise NotClosed("a remainder is supported only for integers and a positive divisor")
    return make_number_value(a % b)


def evaluate_sum_or_product(
    low: RationalExpression,
    high: RationalExpression,
    term: Callable[[RationalExpression], RationalExpression],
    *,
    is_product: bool,
    num_tokens: int,
) -> RationalExpression:
    """Return the sum or product of `term` from `low` to `high`.

    Args:
        low: lower bound, an integer.
        high: upper bound: an integer, infinity, or a formula if the terms are a polynomial or a
            geometric progression.
        term: function that returns the term for a value of the index.
        is_product: True for a product, False for a sum.
        num_tokens: number of tokens of one term, for the limit on the work.

    Raises:
        NotClosed: the bounds or terms are not supported, or there are too many terms.
    """
    first, last = low.rational, high.rational
    if first is None or first.denominator != 1:
        raise NotClosed("the lower bound of a sum (∑) or product (∏) must be an integer")
    if last is None:
        if is_product:
            raise NotClosed("the upper bound of a product (∏) must be a number")
        ratio = _find_ratio_of_successive_terms(term)
        if ratio is not None:
            return _sum_geometric_series(term(low), ratio, low, high)
        if high.numerator == INFINITE:
            return _sum_zeta_series(term(make_atom_value(_INDEX)), int(first))
        return algebra.add(
            _sum_polynomial(term, high),
            algebra.negate(_sum_polynomial(term, make_number_value(first - 1))),
        )
    if last.denominator != 1:
        raise NotClosed("the upper bound of a sum (∑) or product (∏) must be an integer")
    count = last - first + 1
    if count > MAX_TERMS or count * num_tokens > MAX_STEPS:
        raise NotClosed("the sum or product has too many terms")
    total = make_number_value(1 if is_product else 0)
    for k in range(int(first), int(last) + 1):
        term_value = term(make_number_value(k))
        total = (
            algebra.multiply(total, term_value) if is_product else algebra.add(total, term_value)
        )
    return total


_INDEX = "index of a sum"
INFINITE: Polynomial = {frozenset((("∞", 1),)): 1}


def _find_ratio_of_successive_terms(
    term: Callable[[RationalExpression], RationalExpression],
) -> Fraction | None:
    """Return the rational quotient of successive terms if it is constant; None otherwise."""
    index = make_atom_value(_INDEX)
    here, next_one = term(index), term(algebra.add(index, make_number_value(1)))
    if not here.numerator or _INDEX not in algebra.get_free_symbols(here):
        return None
    ratio = algebra.divide(next_one, here).rational
    return ratio if ratio not in (0, 1) else None


def _sum_geometric_series(
    first: RationalExpression, ratio: Fraction, low: RationalExpression, high: RationalExpression
) -> RationalExpression:
    if high.numerator == INFINITE:
        if abs(ratio) >= 1:
            raise NotClosed("the series does not converge")
        return algebra.divide(first, make_number_value(1 - ratio))
    count = algebra.add(high, algebra.add(make_number_value(1), algebra.negate(low)))
    past = algebra.multiply(first, power(make_number_value(ratio), count))
    return algebra.divide(algebra.add(first, algebra.negate(past)), make_number_value(1 - ratio))


def _sum_zeta_series(term: RationalExpression, first: int) -> RationalExpression:
    """Return the infinite sum of c/k^s for even s, a rational multiple of π^s (Euler)."""
    if first != 1 or term.denominator is not UNIT or len(term.numerator) != 1:
        raise NotClosed("this series is not supported")
    ((mono, coefficient),) = term.numerator.items()
    exponents = dict(mono)
    s = -exponents.pop(_INDEX, 0)
    if exponents or s.denominator != 1 or s % 2 or not 2 <= s <= MAX_DEGREE:
        raise NotClosed("this series is not supported")
    bernoulli = abs(_compute_bernoulli_numbers(int(s))[-1])
    factor = bernoulli * Fraction(2) ** (int(s) - 1) / math.factorial(int(s))
    return algebra.multiply(
        make_number_value(factor * coefficient), power(make_atom_value("π"), make_number_value(s))
    )


def _sum_polynomial(
    term: Callable[[RationalExpression], RationalExpression], high: RationalExpression
) -> RationalExpression:
    """Return the sum of a polynomial term from 1 to `high`, by Faulhaber's formula."""
    general = term(make_atom_value(_INDEX))
    if general.denominator is not UNIT:
        raise NotClosed("a sum (Σ) whose summand is a quotient is not supported")
    total = make_number_value(0)
    for mono, coefficient in general.numerator.items():
        exponents = dict(mono)
        degree = exponents.pop(_INDEX, 0)
        if degree.denominator != 1 or not 0 <= degree <= MAX_DEGREE:
            raise NotClosed("a sum is supported only if its terms are polynomials")
        rest: Polynomial = {frozenset(exponents.items()): coefficient}
        if _INDEX in algebra.get_free_symbols(RationalExpression(rest, UNIT)):
            raise NotClosed("a sum is supported only if its terms are polynomials")
        faulhaber = _sum_powers(int(degree), high)
        total = algebra.add(total, algebra.multiply(RationalExpression(rest, UNIT), faulhaber))
    return total


def _sum_powers(degree: int, high: RationalExpression) -> RationalExpression:
    """Return 1^d + 2^d + … + n^d as a polynomial in n."""
    total = make_number_value(0)
    for j, bernoulli in enumerate(_compute_bernoulli_numbers(degree)):
        factor = Fraction(math.comb(degree + 1, j), degree + 1) * bernoulli
        total = algebra.add(
            total,
            algebra.multiply(
                make_number_value(factor), power(high, make_number_value(degree + 1 - j))
            ),
        )
    return total


def _compute_bernoulli_numbers(count: int) -> list[Fraction]:
    """Return the Bernoulli numbers B_0 to B_count, with B_1 = 1/2."""
    numbers: list[Fraction] = []
    for m in range(count + 1):
        rest = sum((math.comb(m + 1, j) * b for j, b in enumerate(numbers)), Fraction(0))
        numbers.append((m + 1 - rest) / (m + 1))
    return numbers
