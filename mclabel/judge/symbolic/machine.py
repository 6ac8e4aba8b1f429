"""Reads one side of an equality from left to right, by a machine of two states.

Before an operand it expects one, behind it an operation, a unit or the end. What does not fit ends
the side or, where the formula may go on in a way that is not known here, leaves it unread: a piece
of a larger expression must not be judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.judge.symbolic.lexing import Kind, Side, Sign
from mclabel.judge.symbolic.vocabulary import (
    CHANGE_BEFORE_NUMBER,
    Unread,
    is_number_near,
    literal_of,
    names_behind,
    past_power,
)

MAX_SIGNS = 80
"""Maximum number of signs of one side."""
MAX_DEPTH = 12
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BEHIND_UNITS = (
    Kind.STOP, Kind.RELATION, Kind.OPERATOR, Kind.CLOSE, Kind.DELIMITER, Kind.OPEN,
)  # fmt: skip
_AFTER_POINT = (Kind.NUMBER, Kind.OPEN, Kind.UNKNOWN)
_OF_FORMULAS = (Kind.NUMBER, Kind.LETTER, Kind.UNKNOWN, Kind.OPERATOR, Kind.COMMAND)


class Machine:
    """Reads one side from a place on."""

    def __init__(
        self, signs: Sequence[Sign], start: int, letters: bool, goal: int | None = None
    ) -> None:
        self.signs = signs
        self.start = self.at = start
        self.letters = letters
        self.goal = len(signs) if goal is None else goal
        self.parts: list[str] = []
        self.stack: list[tuple[str, str, int]] = []
        """For each open bracket: what closes it, how that is spelt, and arguments still due."""
        self.behind = False
        """An operand has just ended."""
        self.last = start
        """Behind the last sign that belongs to the formula."""
        self.product_at: int | None = None
        """Place where a fraction stands behind a number in LaTeX."""
        self.fraction: str | None = None
        """Fraction of a mixed number at the start."""
        self.side = Side(signs[start].start, signs[start].end)
        self.slash: Sign | None = None
        """Sign of a division that has begun; a product without a sign after it has two
        meanings.
        """

    def run(self) -> Side:
        """Read on to the end of the formula.

        Raises:
            Unread: it may go on in a way that is not known.
        """
        while self.at < len(self.signs):
            if self.at - self.start > MAX_SIGNS:
                raise Unread
            sign = self.signs[self.at]
            more = self._operator(sign) if self.behind else self._operand(sign)
            if not more:
                break
        if not self.behind or self.stack:
            raise Unread
        side = self.side
        side.text = "".join(self.parts)
        side.end = self.signs[self.last].end
        if self.product_at is not None:
            at = self.product_at
            side.mixed = f"{''.join(self.parts[:at])}*{''.join(self.parts[at:])}"
        if self.fraction is not None:
            side.mixed = "".join((self.fraction, *self.parts[1:]))
        side.signs_used = self.at - self.start
        side.literal = literal_of(self.parts)
        return side

    def _take(self, text: str, *, behind: bool) -> bool:
        self.parts.append(text)
        self.last = self.at
        self.at += 1
        self.behind = behind
        return True

    def _operand(self, sign: Sign) -> bool:
        """Before an operand."""
        side = self.side
        match sign.kind:
            case Kind.NUMBER:
                if "." in sign.text:
                    side.decimals.append(sign.text)
                return self._take(sign.text, behind=True)
            case Kind.CONSTANT:
                side.operations += 1
                return self._take(sign.text, behind=True)
            case Kind.LETTER if self.letters:
                if self._is_called():
                    raise Unread
                side.letters.add(sign.text)
                return self._take(sign.text, behind=True)
            case Kind.OPERATOR if sign.text in "+-":
                if sign.text == "+" and not self.parts:
                    raise Unread
                return self._take(sign.text, behind=False)
            case Kind.OPEN:
                return self._open(sign, ")", 0)
            case Kind.COMMAND:
                side.operations += 1
                return self._command(sign)
            case Kind.DELIMITER if self.at + 1 < len(self.signs):
                self.at += 1
                return True
            case Kind.WORD if self.parts[-1:] == ["/"]:
                return self._unit_below()
        raise Unread

    def _is_called(self) -> bool:
        """Return whether a letter is a function's or has an index: a bracket or a sign is glued to
        it.
        """
        if self.at + 1 >= len(self.signs):
            return False
        follows = self.signs[self.at + 1]
        return follows.glued and (follows.kind is Kind.OPEN or follows.text in ("_", "'"))

    def _unit_below(self) -> bool:
        """`kg/portion`: the word divides the unit, not the number."""
        self.parts.pop()
        self.side.operations -= 1
        self.last = self.at
        self.at += 1
        self.behind = True
        return True

    def _command(self, sign: Sign) -> bool:
        """A fraction, a root or a binomial with its arguments in brackets."""
        number = 1 if sign.text.startswith("\\sqrt") else 2
        self._take(sign.text, behind=False)
        opening = self._peek()
        if opening is None or opening.kind is not Kind.OPEN:
            if number == 1 and opening is not None and opening.kind is Kind.NUMBER:
                self.parts.append("{")
                self._take(opening.text, behind=True)
                self.parts.append("}")
                return True
            raise Unread
        if number == 2 and opening.text != "{":
            raise Unread
        return self._open(opening, "}", number - 1)

    def _open(self, sign: Sign, spelt: str, due: int) -> bool:
        if len(self.stack) >= MAX_DEPTH:
            raise Unread
        self.stack.append((_CLOSING[sign.text], spelt, due))
        return self._take("{" if spelt == "}" else "(", behind=False)

    def _peek(self) -> Sign | None:
        return self.signs[self.at] if self.at < len(self.signs) else None

    def _operator(self, sign: Sign) -> bool:
        """Behind an operand."""
        match sign.kind:
            case Kind.OPERATOR:
                return self._sign_of_operation(sign)
            case Kind.CLOSE:
                return self._close(sign)
            case Kind.OPEN:
                return self._bracket_behind(sign)
            case Kind.WORD:
                return self._words(sign)
            case Kind.LETTER:
                return self._letter(sign)
            case Kind.COMMAND | Kind.CONSTANT:
                return self._next_factor(sign)
            case Kind.DELIMITER:
                return self._delimiter()
            case Kind.NUMBER:
                return self._mixed_number(sign)
            case Kind.RELATION:
                return False
            case Kind.STOP:
                follows = self.signs[self.at + 1] if self.at + 1 < len(self.signs) else None
                joined = follows is not None and follows.glued and follows.kind in _AFTER_POINT
                if sign.text in ",:." and sign.glued and joined:
                    raise Unread  # 1,5 and 3:4 and 0.(3)
                return False
        raise Unread

    def _mixed_number(self, sign: Sign) -> bool:
        """`3 1/2`: a proper fraction behind a whole number and a space."""
        following = self.signs[self.at + 1 : self.at + 3]
        whole = self.parts[-1]
        slash = [next_sign.text for next_sign in following[:1]] == ["/"]
        if sign.glued or not slash or len(following) < 2 or self.parts[-2:-1] in (["/"], ["^"]):
            raise Unread
        below = following[1]
        numbers = (whole, sign.text, below.text)
        if below.kind is not Kind.NUMBER or not all(n.isdecimal() for n in numbers):
            raise Unread
        if not 0 < int(sign.text) < int(below.text):
            raise Unread
        fraction = f"{sign.text}/{below.text}"
        if len(self.parts) == 1:
            self.fraction = fraction
        self.parts[-1] = f"({whole}+{fraction})"
        self.at += 3
        self.last = self.at - 1
        return True

    def _sign_of_operation(self, sign: Sign) -> bool:
        side = self.side
        if sign.text == "!":
            if not sign.glued:
                return False
            side.operations += 1
            side.vague |= self._may_exclaim()
            return self._take("!", behind=True)
        if sign.text == "%":
            side.has_percent = True
            return self._take("%", behind=True)
        side.operations += 1
        if sign.text == "^":
            if len(self.parts) >= 2 and self.parts[-2] in ("-", "+") and len(self.parts) == 2:
                side.vague = True  # -3^2 is often meant as (-3)^2
            self._take("^", behind=False)
            return self._exponent()
        if sign.text in "+-":
            side.has_sum = True
            self.slash = None
        elif sign.text == "/":
            if self.slash is not None and self.slash.glued != sign.glued:
                side.vague = True  # 6 / 1/2 may be meant as 6 / (1/2)
            self.slash = sign
        return self._take(sign.text, behind=False)

    def _may_exclaim(self) -> bool:
        """Return whether an exclamation mark may end a sentence instead of meaning a factorial."""
        if self.at + 1 >= len(self.signs):
            return True
        follows = self.signs[self.at + 1].kind
        return follows not in (Kind.OPERATOR, Kind.RELATION, Kind.CLOSE)

    def _exponent(self) -> bool:
        sign = self._peek()
        if sign is None or sign.kind not in (Kind.NUMBER, Kind.OPEN):
            raise Unread
        if sign.kind is Kind.NUMBER and "." in sign.text:
            raise Unread
        return True

    def _close(self, sign: Sign) -> bool:
        if not self.stack:
            return False
        closing, spelt, due = self.stack.pop()
        if closing != sign.text:
            raise Unread
        self._take(spelt, behind=True)
        if due:
            opening = self._peek()
            if opening is None or opening.text != "{":
                raise Unread
            self._open(opening, "}", due - 1)
        return True

    def _bracket_behind(self, sign: Sign) -> bool:
        """A bracket behind a number: words about it, or a factor."""
        depth = 0
        has_words = has_numbers = False
        for end in range(self.at, min(len(self.signs), self.at + 30)):
            inside = self.signs[end]
            depth += (inside.kind is Kind.OPEN) - (inside.kind is Kind.CLOSE)
            has_words |= inside.kind in (Kind.WORD, Kind.STOP, Kind.RELATION)
            has_numbers |= inside.kind in _OF_FORMULAS
            if not depth:
                break
        else:
            raise Unread
        if has_words and sign.text == "(":
            if has_numbers and sign.glued:
                raise Unread
            self.side.vague |= has_numbers
            self.at = end + 1
            return True
        if sign.text == "{":
            raise Unread
        if not sign.glued and not sign.math:
            self.side.vague = True
        return self._next_factor(sign)

    def _next_factor(self, sign: Sign) -> bool:
        """A product without a sign."""
        if self.slash is not None:
            self.side.vague = True
        is_fraction = sign.text == "\\frac" or (sign.kind is Kind.CONSTANT and sign.text != "π")
        if is_fraction and self.signs[self.at - 1].kind is Kind.NUMBER:
            self.side.vague |= self.product_at is not None
            self.product_at = len(self.parts)
        self.side.operations += 1
        self.behind = False
        return True

    def _letter(self, sign: Sign) -> bool:
        if self._is_times_sign(self.at):
            self.side.operations += 1
            return self._take("*", behind=False)
        if self.letters:
            if not (sign.glued or sign.math):
                raise Unread
            return self._next_factor(sign)
        raise Unread

    def _delimiter(self) -> bool:
        """The formula goes on behind a delimiter only where an operator or a relation follows."""
        at = self.at
        while at < len(self.signs) and self.signs[at].kind is Kind.DELIMITER:
            at += 1
        if at == len(self.signs):
            self.at = at
            return False
        follows = self.signs[at]
        alone = at - self.at == 1
        if follows.kind is Kind.OPERATOR and alone:
            if self._opens_with_minus(at):
                return False
            self.at = at
            return True
        if follows.kind is Kind.RELATION or at >= self.goal:
            self.at = at
        elif follows.kind is Kind.WORD and alone and not self.stack:
            self.at = at
            return self._words(follows)
        return False

    def _opens_with_minus(self, at: int) -> bool:
        """Return whether the delimiter before a minus opens a formula: `for $x$ yields $-x +
        6$`.
        """
        if self.signs[at].text != "-":
            return False
        if self.signs[at - 1].text in ("\\(", "\\["):
            return True
        if at + 1 < len(self.signs) and self.signs[at + 1].text in ("\\(", "\\["):
            raise Unread  # a difference, or two items of a list that was put on one line
        tight = self.signs[at].glued and at + 1 < len(self.signs) and self.signs[at + 1].glued
        return tight and self.signs[at + 1].kind is not Kind.DELIMITER

    def _words(self, sign: Sign) -> bool:
        """Units of a number, `of` as a product, or the words behind the formula."""
        if self.letters and self.signs[self.at - 1].kind is Kind.LETTER:
            return False
        word = sign.text.lower()
        if word == "of" and (self.parts[-1] in ("%", "}") or self.parts[-2:-1] == ["/"]):
            follows = self.signs[self.at + 1] if self.at + 1 < len(self.signs) else None
            if follows is not None and follows.kind in (Kind.NUMBER, Kind.DELIMITER, Kind.OPEN):
                self.side.operations += 1
                return self._take("*", behind=False)
        names, at = names_behind(self.signs, self.at, self.goal)
        at, follows = past_power(self.signs, at)
        if at == self.at:
            if word in CHANGE_BEFORE_NUMBER and self._counts_on(at):
                raise Unread
            return False
        self.side.units |= names
        if follows is None or follows.kind in _BEHIND_UNITS or self._is_times_sign(at):
            self.at = at
            return True
        return False

    def _is_times_sign(self, at: int) -> bool:
        """Return whether an x between two numbers is there, as in `42 bales x 75 pounds`."""
        if at + 1 >= len(self.signs) or self.letters or self.signs[at].text not in ("x", "X"):
            return False
        return self.signs[at + 1].kind in (Kind.NUMBER, Kind.DELIMITER)

    def _counts_on(self, at: int) -> bool:
        """Return whether a word goes on with the number: `3 and 1/2`, `3 and a half`, `1/2 of
        it`.
        """
        if self.signs[at].text == "of":
            return self.side.operations > 0 or self.side.has_percent
        return is_number_near(self.signs, at)
