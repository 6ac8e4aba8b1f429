"""Cuts a formula into tokens, and reads the names among them."""

from __future__ import annotations

import re

from mclabel.answers.reading.operators import EXTREMA
from mclabel.answers.values.monomials import NotClosed

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
"""Letters in a row beyond this are a word, not a product."""


class Tokens:
    """A token list and a position in it."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        self.spaced: list[bool] = []
        """Whether white space stands before the token."""
        for match in _TOKEN.finditer(text):
            digits, command, letters, sign = match.groups()
            space = text[max(0, match.start() - 1)].isspace()
            if letters:
                self._letters(letters, space)
                continue
            self.tokens.append(digits or (f"\\{command}" if command else sign))
            self.spaced.append(space)
        self.at = 0

    def _letters(self, letters: str, space: bool) -> None:
        """A function's name, a spelt constant, or a product of single letters."""
        if self.tokens[-1:] == ["_"] or self.tokens[-2:] == ["_", "{"] or letters[1:2] == "'":
            self.tokens.append(letters)
            self.spaced.append(space)
            return
        if letters in EXTREMA or letters == "mod":
            self.tokens.append(f"\\{letters}")
            self.spaced.append(space)
            return
        if letters in FUNCTIONS or letters in _SPELT or letters in GREEK:
            self.tokens.append(_SPELT.get(letters, f"\\{letters}"))
            self.spaced.append(space)
            return
        for name in ("sqrt", "sin", "cos", "tan", "log", "ln"):
            start = letters.find(name)
            if 0 <= start <= 1 and len(letters) - len(name) - start <= 1:
                pieces = (*letters[:start], f"\\{name}", *letters[start + len(name) :])
                self.tokens.extend(pieces)
                self.spaced.extend([False] * len(pieces))
                return
        if len(letters) > _MAX_WORD or letters.lower() in _NO_PRODUCT or "'" in letters:
            raise NotClosed("a word")
        self.tokens.extend(letters)
        self.spaced.extend([space] + [False] * (len(letters) - 1))

    def peek(self) -> str | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self) -> str:
        if self.at >= len(self.tokens):
            raise NotClosed("ends early")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        if self.next() != token:
            raise NotClosed(f"no {token}")

    def primes(self) -> str:
        r"""Primes behind a name that are written as a power: `x^{\prime}`."""
        if self.peek() == "'":
            self.at += 1
            return "'" + self.primes()
        if self.peek() != "^":
            return ""
        group = self.tokens[self.at + 1 : self.at + 6]
        end = group.index("}") if group[:1] == ["{"] and "}" in group else 1
        inside = group[1:end] if group[:1] == ["{"] else group[:1]
        if not inside or any(token != "'" for token in inside):
            return ""
        self.at += 1 + (end + 1 if group[0] == "{" else 1)
        return "'" * len(inside)

    def subscript(self) -> str:
        if self.peek() != "{":
            return self.next().lstrip("\\")
        self.at += 1
        parts = []
        while (token := self.next()) != "}":
            token = token.lstrip("\\")
            if not (token.isalnum() or token in ",+-*"):
                raise NotClosed("a subscript that is a formula")
            parts.append(token)
        return "".join(parts)

    def group(self) -> list[str]:
        """The tokens in the braces that open here, which are passed over."""
        self.expect("{")
        start, depth = self.at, 1
        while depth:
            token = self.next()
            depth += (token == "{") - (token == "}")
        return self.tokens[start : self.at - 1]

    def letters_of_group(self) -> str:
        """What an accent stands on: a group of letters, or the letters up to a space."""
        if self.peek() == "{":
            letters = self.group()
        else:
            letters = [self.next()]
            while (token := self.peek()) and token.isalpha() and not self.spaced[self.at]:
                letters.append(self.next())
        if not letters or not all(x.lstrip("\\").isalpha() for x in letters):
            raise NotClosed("an accent over a formula")
        return "".join(letters)
