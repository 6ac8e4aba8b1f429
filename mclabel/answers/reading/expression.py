r"""Parses the arithmetic of most answers to exact values.

The parser is a recursive descent over a small grammar: numbers, letters, + - * / ^ !, \frac, \sqrt,
\binom, |x|, roots, logarithms and the usual functions. It is not a complete LaTeX parser. Any other
syntax raises `NotClosed`, and the sympy worker parses the text. This parser takes 30 µs, the
LaTeX parser 1.3 ms. It can read nearly every formula of real answers and cannot build large values.
"""

from __future__ import annotations

from fractions import Fraction

from mclabel.answers.effort import spend_work
from mclabel.answers.reading.tokens import (
    EXTREMA,
    FUNCTIONS,
    GREEK,
    INFINITE,
    FormulaTokens,
    compute_gcd_or_extremum,
    compute_remainder,
    evaluate_sum_or_product,
)
from mclabel.answers.values import algebra, functions, powers
from mclabel.answers.values.algebra import RationalExpression, make_atom_value, make_number_value
from mclabel.answers.values.monomials import UNIT, NotClosed

MAX_LENGTH = 500
MAX_DEPTH = 40

_DERIVATIVES = {"y'": "dy/dx", "y''": "d^2y/dx^2"}
_ACCENTS = frozenset(
    "bar hat tilde dot ddot overline overrightarrow overleftarrow widehat widetilde angle triangle "
    "partial".split()
)
"""LaTeX commands that combine the following letters into one name, such as `\\overline{AB}`."""


def read_expression(text: str) -> RationalExpression:
    """Parse a normalised text as a closed form.

    Raises:
        NotClosed: the text is not a closed form of the grammar, or is too large.
    """
    if len(text) > MAX_LENGTH:
        raise NotClosed("too long")
    reader = _FormulaParser(text)
    try:
        value = reader.read_sum()
    except OverflowError as error:
        raise NotClosed(str(error)) from error
    if reader.peek() is not None:
        raise NotClosed(f"unexpected {reader.peek()}")
    return value


class _FormulaParser(FormulaTokens):
    """Recursive-descent parser of the tokens of a formula. Each method reads one rule of the
    grammar from the current position and returns its value.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0
        self.bars = 0
        self.bound: dict[str, RationalExpression] = {}
        """Values of the index variables of the enclosing sums, by name."""

    def read_sum(self) -> RationalExpression:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotClosed("nested too deep")
        total = self.read_product()
        while self.peek() in ("+", "-"):
            minus = self.next() == "-"
            term = self.read_product()
            total = algebra.add(total, algebra.negate(term) if minus else term)
        self.depth -= 1
        return total

    def read_product(self) -> RationalExpression:
        total = self.read_signed_factor()
        while (token := self.peek()) is not None:
            if token == "*":
                self.at += 1
                total = algebra.multiply(total, self.read_signed_factor())
            elif token == "/":
                self.at += 1
                total = algebra.divide(total, self.read_signed_factor())
            elif token in ("\\bmod", "\\mod"):
                self.at += 1
                total = compute_remainder(total, self.read_signed_factor())
            elif self._starts_factor(token):
                if (token[0].isdigit() or token[0] == ".") and not self._is_separate_factor():
                    raise NotClosed("a number after a factor")
                total = algebra.multiply(total, self.read_factor())
            else:
                break
        return total

    def _is_separate_factor(self) -> bool:
        """Return whether a number after a factor is another factor, as in `3!7!` or `2^6 3^5`."""
        if self.tokens[self.at - 1] == "!":
            return True
        powers_before = "^" in (self.tokens[self.at - 2], self.tokens[max(self.at - 4, 0)])
        return self.spaced[self.at] and powers_before

    def _starts_factor(self, token: str) -> bool:
        if token == "|":
            return not self.bars
        return token[0].isalnum() or (token[0] in "(\\[{π∞." and token != "\\")

    def read_signed_factor(self) -> RationalExpression:
        minus = False
        while self.peek() in ("+", "-"):
            minus ^= self.next() == "-"
        value = self.read_factor()
        return algebra.negate(value) if minus else value

    def read_factor(self) -> RationalExpression:
        return self.apply_postfixes(self.read_primary())

    def apply_postfixes(self, value: RationalExpression) -> RationalExpression:
        while (token := self.peek()) is not None:
            if token == "!":
                self.at += 1
                value = functions.factorial(value)
            elif token == "°":
                self.at += 1
                value = algebra.multiply(
                    value, algebra.divide(make_atom_value("π"), make_number_value(180))
                )
            elif token == "%":
                self.at += 1
                value = algebra.divide(value, make_number_value(100))
            elif token == "^":
                self.at += 1
                value = powers.power(value, self.read_exponent())
            else:
                break
        return value

    def read_exponent(self) -> RationalExpression:
        """Read the exponent after ^: a group or a signed factor. In a tower of powers, the
        rightmost power is evaluated first.
        """
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotClosed("nested too deep")
        minus = False
        while self.peek() in ("+", "-"):
            minus ^= self.next() == "-"
        value = self.read_primary()
        if self.peek() == "^":
            self.at += 1
            value = powers.power(value, self.read_exponent())
        self.depth -= 1
        return algebra.negate(value) if minus else value

    def read_primary(self) -> RationalExpression:
        spend_work(4)
        token = self.next()
        first = token[0]
        if first.isdigit() or (first == "." and len(token) > 1):
            return self.read_number(token)
        if token in _CLOSING:
            value = self.read_sum()
            self.expect(_CLOSING[token])
            return value
        if token == "|":
            self.bars += 1
            value = self.read_sum()
            self.expect("|")
            self.bars -= 1
            return functions.absolute_value(value)
        if token == "π":
            return make_atom_value("π")
        if first == "\\" and len(token) > 1:
            return self.read_command(token[1:])
        if first.isalpha():
            return self.read_symbol(token)
        raise NotClosed(f"unexpected {token}")

    def read_number(self, token: str) -> RationalExpression:
        """Return the value of a number.

        An integer before a proper fraction of integers is a mixed number.
        """
        value = Fraction(token)
        if self.peek() == "\\frac" and token.isdigit():
            fraction = self.tokens[self.at + 1 : self.at + 7]
            if len(fraction) == 6 and fraction[1].isdigit() and fraction[4].isdigit():
                top, bottom = int(fraction[1]), int(fraction[4])
                if 0 < top < bottom and fraction[0] + fraction[2] == "{}":
                    self.at += 7
                    return make_number_value(value + Fraction(top, bottom))
        return make_number_value(value)

    def read_symbol(self, name: str) -> RationalExpression:
        if self.peek() == "_":
            self.at += 1
            name = f"{name}_{self.read_subscript()}"
        name += self.read_primes()
        name = _DERIVATIVES.get(name, name)
        if name in self.bound:
            return self.bound[name]
        if name in ("e", "i"):
            return make_atom_value(name)
        if name == "d" and self.tokens[self.at + 1 : self.at + 3] == ["/", "d"]:
            parts = self.tokens[self.at : self.at + 4]
            if len(parts) == 4 and parts[0].isalpha() and parts[3].isalpha():
                self.at += 4
                return make_atom_value(f"d{''.join(parts)}")
        if name[0] in "fgh" and not name.strip("fgh'") and self.peek() == "(":
            self.at += 1
            argument = self.read_sum()
            self.expect(")")
            return make_atom_value((f"call {name}", algebra.make_hashable_key(argument)))
        if name == "C" and self.peek() == "(":
            return self.read_binomial_or_symbol()
        return make_atom_value(name)

    def read_binomial_or_symbol(self) -> RationalExpression:
        """Read `C(n, k)` as a binomial coefficient, or C before other brackets as a symbol."""
        start = self.at
        self.at += 1
        top = self.read_sum()
        if self.peek() != ",":
            self.at = start
            return make_atom_value("C")
        self.at += 1
        bottom = self.read_sum()
        self.expect(")")
        return functions.binomial(top, bottom)

    def read_command(self, name: str) -> RationalExpression:
        if name == "frac":
            if self.tokens[self.at : self.at + 2] in (["{", "d"], ["{", "\\partial"]):
                derivative = self.read_derivative()
                if derivative is not None:
                    return derivative
            return algebra.divide(self.read_command_argument(), self.read_command_argument())
        if name == "sqrt":
            index = make_number_value(2)
            if self.peek() == "[":
                self.at += 1
                index = self.read_sum()
                self.expect("]")
            return powers.power(
                self.read_command_argument(), algebra.divide(make_number_value(1), index)
            )
        if name == "cbrt":
            return powers.power(self.read_command_argument(), make_number_value(Fraction(1, 3)))
        if name == "binom":
            return functions.binomial(self.read_command_argument(), self.read_command_argument())
        if name in FUNCTIONS:
            return self.read_function(name)
        if name in GREEK:
            return self.read_symbol(name)
        if name in EXTREMA:
            return self.read_gcd_or_extremum(name)
        if name in ("sum", "prod"):
            return self.read_sum_or_product(is_product=name == "prod")
        if name in _ACCENTS:
            return self.read_symbol(f"{name} {self.read_letters_under_accent()}")
        if name in ("lfloor", "lceil"):
            value = self.read_sum()
            self.expect("\\rfloor" if name == "lfloor" else "\\rceil")
            return functions.round_to_integer(value, rounds_up=name == "lceil")
        raise NotClosed(f"\\{name}")

    def read_derivative(self) -> RationalExpression | None:
        """Read `dy/dx` written as a fraction, which is a single name, so that d is not cancelled.

        Returns:
            None if the fraction is not a derivative.

        Raises:
            NotClosed: the fraction is the operator d/dx, which is applied to the next expression.
        """
        start = self.at
        top = self.read_group()
        bottom = self.read_group() if self.peek() == "{" else []
        d = top[0]
        if bottom[:1] != [d] or len(bottom) < 2:
            self.at = start
            return None
        if len([token for token in top if token.lstrip("\\").isalpha() and token != d]) == 0:
            raise NotClosed("a derivative to be taken")
        return make_atom_value(
            "".join(c for c in f"{''.join(top)}/{''.join(bottom)}" if c not in "{}")
        )

    def read_gcd_or_extremum(self, name: str) -> RationalExpression:
        r"""Read `\gcd(a, b)` or `\max\{a, b\}`."""
        opening = self.next()
        if opening == "\\" and self.peek() == "{":
            opening = "\\" + self.next()
        closing = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}.get(opening)
        if closing is None:
            raise NotClosed(f"{name} without brackets")
        values = [self.read_sum()]
        while self.peek() in (",", ";"):
            self.at += 1
            values.append(self.read_sum())
        for token in closing:
            self.expect(token)
        return compute_gcd_or_extremum(name, values)

    def read_infinite_bound(self) -> RationalExpression | None:
        """Read infinity as the upper bound of a sum; return None if the bound is not infinity."""
        for written in (["∞"], ["{", "∞", "}"], ["{", "+", "∞", "}"]):
            if self.tokens[self.at : self.at + len(written)] == written:
                self.at += len(written)
                return RationalExpression(INFINITE, UNIT)
        return None

    def read_sum_or_product(self, *, is_product: bool) -> RationalExpression:
        r"""Read the bounds of a `\sum` or `\prod` and the product after them, and evaluate it."""
        self.expect("_")
        self.expect("{")
        index = self.next()
        self.expect("=")
        low = self.read_sum()
        self.expect("}")
        self.expect("^")
        high = self.read_infinite_bound() or self.read_exponent()
        start, outer = self.at, dict(self.bound)

        def evaluate_term(value: RationalExpression) -> RationalExpression:
            self.at = start
            self.bound = {**outer, index: value}
            result = self.read_product()
            self.bound = outer
            return result

        evaluate_term(make_atom_value(index))
        return evaluate_sum_or_product(
            low, high, evaluate_term, is_product=is_product, num_tokens=self.at - start
        )

    def read_command_argument(self) -> RationalExpression:
        """Read the argument of a LaTeX command: a group or the next token."""
        if self.peek() in ("{", "("):
            return self.read_primary()
        token = self.next()
        if token.isdigit():
            return make_number_value(int(token))
        self.at -= 1
        return self.read_primary()

    def read_function(self, name: str) -> RationalExpression:
        exponent = base = None
        for _ in range(2):
            if self.peek() == "^":
                self.at += 1
                exponent = self.read_exponent()
            elif self.peek() == "_" and name == "log":
                self.at += 1
                base = self.read_command_argument()
        if exponent is not None and exponent.rational == -1:
            if name not in ("sin", "cos", "tan"):
                raise NotClosed("the inverse of a function other than sin, cos and tan")
            return self.read_function_value(f"arc{name}", base)
        value = self.read_function_value(name, base)
        return value if exponent is None else powers.power(value, exponent)

    def read_function_value(self, name: str, base: RationalExpression | None) -> RationalExpression:
        """Read the argument of a function and return the value of the function.

        The argument is a group, or the factors up to a sign or another function. A power after the
        brackets belongs to the function, as in `sin(x)^2`.
        """
        if self.peek() in ("{", "(", "[", "|"):
            braced = self.peek() == "{"
            argument = self.read_primary()
            if braced and self.peek() == "^":
                raise NotClosed("a power after a function's argument in braces is ambiguous")
        else:
            argument = self.read_signed_factor()
            while (token := self.peek()) is not None and (
                token.isalpha() or token in ("π", "/", "°") or token[1:] in GREEK
            ):
                if token == "/":
                    self.at += 1
                    argument = algebra.divide(argument, self.read_factor())
                else:
                    argument = algebra.multiply(argument, self.read_factor())
        return functions.apply_function(name, argument, base)


_CLOSING = {"(": ")", "{": "}", "[": "]"}
