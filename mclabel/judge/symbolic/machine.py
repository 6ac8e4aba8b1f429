"""Reads one side of an equality from left to right with a state machine of two states.

In the first state the machine expects an operand. In the second state, after an operand, it expects
an operator, a unit or the end of the side. A token that does not fit ends the side. If the formula
may continue in a form that the machine does not support, the side is not read at all, since the
value of a part says nothing about the whole expression.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.judge.symbolic.lexing import Side, Token, TokenKind
from mclabel.judge.symbolic.vocabulary import (
    CHANGE_BEFORE_NUMBER,
    UnreadableFormula,
    is_number_among_next_two,
    read_single_number,
    read_unit_words,
    skip_unit_power,
)

MAX_SIGNS = 80
"""Maximum number of tokens of one side."""
MAX_DEPTH = 12
"""Maximum depth of nested brackets."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BEHIND_UNITS = (
    TokenKind.STOP, TokenKind.RELATION, TokenKind.OPERATOR, TokenKind.CLOSE,
    TokenKind.DELIMITER, TokenKind.OPEN,
)  # fmt: skip
_AFTER_POINT = (TokenKind.NUMBER, TokenKind.OPEN, TokenKind.UNKNOWN)
_OF_FORMULAS = (
    TokenKind.NUMBER,
    TokenKind.LETTER,
    TokenKind.UNKNOWN,
    TokenKind.OPERATOR,
    TokenKind.COMMAND,
)


class SideParser:
    """State machine that reads one side of an equality, from a given token on."""

    def __init__(
        self, tokens: Sequence[Token], start: int, letters: bool, end_index: int | None = None
    ) -> None:
        """Begin before the first token of a side.

        Args:
            tokens: tokens of the step.
            start: index of the first token of the side.
            letters: True if single letters are read as variables.
            end_index: index of the token at which the side must end; None if it may end anywhere.
        """
        self.tokens = tokens
        self.start = self.at = start
        self.letters = letters
        self.end_index = len(tokens) if end_index is None else end_index
        self.parts: list[str] = []
        self.stack: list[tuple[str, str, int]] = []
        """For each open bracket: its closing bracket, the text written for the closing bracket, and
        the number of LaTeX arguments that must follow.
        """
        self.is_after_operand = False
        """True in the second state, after an operand."""
        self.last = start
        """Index of the last token that belongs to the formula."""
        self.product_at: int | None = None
        """Index in `parts` of a LaTeX fraction that directly follows a number."""
        self.fraction: str | None = None
        """Fraction of a mixed number at the start of the side."""
        self.side = Side(tokens[start].start, tokens[start].end)
        self.slash: Token | None = None
        """Token of the last division. An implicit product after it is ambiguous."""

    def run(self) -> Side:
        """Read to the end of the formula, and return the side.

        Raises:
            UnreadableFormula: the formula may continue in an unsupported form.
        """
        while self.at < len(self.tokens):
            if self.at - self.start > MAX_SIGNS:
                raise UnreadableFormula
            token = self.tokens[self.at]
            more = (
                self._read_after_operand(token)
                if self.is_after_operand
                else self._read_operand(token)
            )
            if not more:
                break
        if not self.is_after_operand or self.stack:
            raise UnreadableFormula
        side = self.side
        side.text = "".join(self.parts)
        side.end = self.tokens[self.last].end
        if self.product_at is not None:
            at = self.product_at
            side.mixed_number_reading = f"{''.join(self.parts[:at])}*{''.join(self.parts[at:])}"
        if self.fraction is not None:
            side.mixed_number_reading = "".join((self.fraction, *self.parts[1:]))
        side.num_tokens = self.at - self.start
        side.single_number = read_single_number(self.parts)
        return side

    def _append_part(self, text: str, *, is_after_operand: bool) -> bool:
        self.parts.append(text)
        self.last = self.at
        self.at += 1
        self.is_after_operand = is_after_operand
        return True

    def _read_operand(self, token: Token) -> bool:
        """Read a token where an operand is expected. Return False if it ends the formula."""
        side = self.side
        match token.kind:
            case TokenKind.NUMBER:
                if "." in token.text:
                    side.decimals.append(token.text)
                return self._append_part(token.text, is_after_operand=True)
            case TokenKind.CONSTANT:
                side.num_operations += 1
                return self._append_part(token.text, is_after_operand=True)
            case TokenKind.LETTER if self.letters:
                if self._is_function_or_subscript():
                    raise UnreadableFormula
                side.letters.add(token.text)
                return self._append_part(token.text, is_after_operand=True)
            case TokenKind.OPERATOR if token.text in "+-":
                if token.text == "+" and not self.parts:
                    raise UnreadableFormula
                return self._append_part(token.text, is_after_operand=False)
            case TokenKind.OPEN:
                return self._open_bracket(token, ")", 0)
            case TokenKind.COMMAND:
                side.num_operations += 1
                return self._read_command(token)
            case TokenKind.DELIMITER if self.at + 1 < len(self.tokens):
                self.at += 1
                return True
            case TokenKind.WORD if self.parts[-1:] == ["/"]:
                return self._read_denominator_unit()
        raise UnreadableFormula

    def _is_function_or_subscript(self) -> bool:
        """Return whether the current letter is no plain variable, as in `f(`, `a_` or `f'`."""
        if self.at + 1 >= len(self.tokens):
            return False
        follows = self.tokens[self.at + 1]
        return follows.is_glued and (follows.kind is TokenKind.OPEN or follows.text in ("_", "'"))

    def _read_denominator_unit(self) -> bool:
        """Read a word after a slash, as in `kg/portion`. It divides the unit, not the number."""
        self.parts.pop()
        self.side.num_operations -= 1
        self.last = self.at
        self.at += 1
        self.is_after_operand = True
        return True

    def _read_command(self, token: Token) -> bool:
        """Read a fraction, a root or a binomial with its arguments in brackets."""
        number = 1 if token.text.startswith("\\sqrt") else 2
        self._append_part(token.text, is_after_operand=False)
        opening = self._peek_token()
        if opening is None or opening.kind is not TokenKind.OPEN:
            if number == 1 and opening is not None and opening.kind is TokenKind.NUMBER:
                self.parts.append("{")
                self._append_part(opening.text, is_after_operand=True)
                self.parts.append("}")
                return True
            raise UnreadableFormula
        if number == 2 and opening.text != "{":
            raise UnreadableFormula
        return self._open_bracket(opening, "}", number - 1)

    def _open_bracket(self, token: Token, closing_text: str, num_arguments_due: int) -> bool:
        if len(self.stack) >= MAX_DEPTH:
            raise UnreadableFormula
        self.stack.append((_CLOSING[token.text], closing_text, num_arguments_due))
        return self._append_part("{" if closing_text == "}" else "(", is_after_operand=False)

    def _peek_token(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def _read_after_operand(self, token: Token) -> bool:
        """Read a token after an operand. Return False if it ends the formula."""
        match token.kind:
            case TokenKind.OPERATOR:
                return self._read_operator(token)
            case TokenKind.CLOSE:
                return self._close_bracket(token)
            case TokenKind.OPEN:
                return self._read_bracket_after_number(token)
            case TokenKind.WORD:
                return self._read_words(token)
            case TokenKind.LETTER:
                return self._read_letter(token)
            case TokenKind.COMMAND | TokenKind.CONSTANT:
                return self._read_next_factor(token)
            case TokenKind.DELIMITER:
                return self._read_delimiters()
            case TokenKind.NUMBER:
                return self._read_mixed_number(token)
            case TokenKind.RELATION:
                return False
            case TokenKind.STOP:
                follows = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
                joined = follows is not None and follows.is_glued and follows.kind in _AFTER_POINT
                if token.text in ",:." and token.is_glued and joined:
                    raise UnreadableFormula  # 1,5 and 3:4 and 0.(3)
                return False
        raise UnreadableFormula

    def _read_mixed_number(self, token: Token) -> bool:
        """Read a mixed number such as `3 1/2`, at the fraction after the whole number."""
        following = self.tokens[self.at + 1 : self.at + 3]
        whole = self.parts[-1]
        slash = [next_sign.text for next_sign in following[:1]] == ["/"]
        if token.is_glued or not slash or len(following) < 2 or self.parts[-2:-1] in (["/"], ["^"]):
            raise UnreadableFormula
        below = following[1]
        numbers = (whole, token.text, below.text)
        if below.kind is not TokenKind.NUMBER or not all(n.isdecimal() for n in numbers):
            raise UnreadableFormula
        if not 0 < int(token.text) < int(below.text):
            raise UnreadableFormula
        fraction = f"{token.text}/{below.text}"
        if len(self.parts) == 1:
            self.fraction = fraction
        self.parts[-1] = f"({whole}+{fraction})"
        self.at += 3
        self.last = self.at - 1
        return True

    def _read_operator(self, token: Token) -> bool:
        side = self.side
        if token.text == "!":
            if not token.is_glued:
                return False
            side.num_operations += 1
            side.is_ambiguous |= self._may_end_sentence()
            return self._append_part("!", is_after_operand=True)
        if token.text == "%":
            side.has_percent = True
            return self._append_part("%", is_after_operand=True)
        side.num_operations += 1
        if token.text == "^":
            if len(self.parts) >= 2 and self.parts[-2] in ("-", "+") and len(self.parts) == 2:
                side.is_ambiguous = True  # writers of -3^2 often mean (-3)^2
            self._append_part("^", is_after_operand=False)
            return self._require_supported_exponent()
        if token.text in "+-":
            side.has_sum = True
            self.slash = None
        elif token.text == "/":
            if self.slash is not None and self.slash.is_glued != token.is_glued:
                side.is_ambiguous = True  # 6 / 1/2 may be meant as 6 / (1/2)
            self.slash = token
        return self._append_part(token.text, is_after_operand=False)

    def _may_end_sentence(self) -> bool:
        """Return whether an exclamation mark may end a sentence instead of meaning a factorial."""
        if self.at + 1 >= len(self.tokens):
            return True
        return self.tokens[self.at + 1].kind not in (
            TokenKind.OPERATOR,
            TokenKind.RELATION,
            TokenKind.CLOSE,
        )

    def _require_supported_exponent(self) -> bool:
        token = self._peek_token()
        if token is None or token.kind not in (TokenKind.NUMBER, TokenKind.OPEN):
            raise UnreadableFormula
        if token.kind is TokenKind.NUMBER and "." in token.text:
            raise UnreadableFormula
        return True

    def _close_bracket(self, token: Token) -> bool:
        if not self.stack:
            return False
        closing, spelt, due = self.stack.pop()
        if closing != token.text:
            raise UnreadableFormula
        self._append_part(spelt, is_after_operand=True)
        if due:
            opening = self._peek_token()
            if opening is None or opening.text != "{":
                raise UnreadableFormula
            self._open_bracket(opening, "}", due - 1)
        return True

    def _read_bracket_after_number(self, token: Token) -> bool:
        """Read a bracket after a number. The bracket holds words about the number, or a factor."""
        depth = 0
        has_words = has_numbers = False
        for end in range(self.at, min(len(self.tokens), self.at + 30)):
            inside = self.tokens[end]
            depth += (inside.kind is TokenKind.OPEN) - (inside.kind is TokenKind.CLOSE)
            has_words |= inside.kind in (TokenKind.WORD, TokenKind.STOP, TokenKind.RELATION)
            has_numbers |= inside.kind in _OF_FORMULAS
            if not depth:
                break
        else:
            raise UnreadableFormula
        if has_words and token.text == "(":
            if has_numbers and token.is_glued:
                raise UnreadableFormula
            self.side.is_ambiguous |= has_numbers
            self.at = end + 1
            return True
        if token.text == "{":
            raise UnreadableFormula
        if not token.is_glued and not token.is_in_formula:
            self.side.is_ambiguous = True
        return self._read_next_factor(token)

    def _read_next_factor(self, token: Token) -> bool:
        """Read the next factor of an implicit product."""
        if self.slash is not None:
            self.side.is_ambiguous = True
        is_fraction = token.text == "\\frac" or (
            token.kind is TokenKind.CONSTANT and token.text != "π"
        )
        if is_fraction and self.tokens[self.at - 1].kind is TokenKind.NUMBER:
            self.side.is_ambiguous |= self.product_at is not None
            self.product_at = len(self.parts)
        self.side.num_operations += 1
        self.is_after_operand = False
        return True

    def _read_letter(self, token: Token) -> bool:
        if self._is_times_sign(self.at):
            self.side.num_operations += 1
            return self._append_part("*", is_after_operand=False)
        if self.letters:
            if not (token.is_glued or token.is_in_formula):
                raise UnreadableFormula
            return self._read_next_factor(token)
        raise UnreadableFormula

    def _read_delimiters(self) -> bool:
        """Read delimiters. The formula continues only if an operator or a relation follows."""
        at = self.at
        while at < len(self.tokens) and self.tokens[at].kind is TokenKind.DELIMITER:
            at += 1
        if at == len(self.tokens):
            self.at = at
            return False
        follows = self.tokens[at]
        alone = at - self.at == 1
        if follows.kind is TokenKind.OPERATOR and alone:
            if self._opens_formula_with_minus(at):
                return False
            self.at = at
            return True
        if follows.kind is TokenKind.RELATION or at >= self.end_index:
            self.at = at
        elif follows.kind is TokenKind.WORD and alone and not self.stack:
            self.at = at
            return self._read_words(follows)
        return False

    def _opens_formula_with_minus(self, token_index: int) -> bool:
        """Return whether the delimiter before a minus opens a formula, as in `yields $-x + 6$`."""
        if self.tokens[token_index].text != "-":
            return False
        if self.tokens[token_index - 1].text in ("\\(", "\\["):
            return True
        if token_index + 1 < len(self.tokens) and self.tokens[token_index + 1].text in (
            "\\(",
            "\\[",
        ):
            raise UnreadableFormula  # either a difference, or two list items on one line
        tight = (
            self.tokens[token_index].is_glued
            and token_index + 1 < len(self.tokens)
            and self.tokens[token_index + 1].is_glued
        )
        return tight and self.tokens[token_index + 1].kind is not TokenKind.DELIMITER

    def _read_words(self, token: Token) -> bool:
        """Read the units of a number, `of` as a product, or the words after the formula."""
        if self.letters and self.tokens[self.at - 1].kind is TokenKind.LETTER:
            return False
        word = token.text.lower()
        if word == "of" and (self.parts[-1] in ("%", "}") or self.parts[-2:-1] == ["/"]):
            follows = self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None
            if follows is not None and follows.kind in (
                TokenKind.NUMBER,
                TokenKind.DELIMITER,
                TokenKind.OPEN,
            ):
                self.side.num_operations += 1
                return self._append_part("*", is_after_operand=False)
        names, at = read_unit_words(self.tokens, self.at, self.end_index)
        at, follows = skip_unit_power(self.tokens, at)
        if at == self.at:
            if word in CHANGE_BEFORE_NUMBER and self._word_continues_number(at):
                raise UnreadableFormula
            return False
        self.side.units |= names
        if follows is None or follows.kind in _BEHIND_UNITS or self._is_times_sign(at):
            self.at = at
            return True
        return False

    def _is_times_sign(self, token_index: int) -> bool:
        """Return whether the token at an index is an x that means times, as in `42 x 75`."""
        if (
            token_index + 1 >= len(self.tokens)
            or self.letters
            or self.tokens[token_index].text not in ("x", "X")
        ):
            return False
        return self.tokens[token_index + 1].kind in (TokenKind.NUMBER, TokenKind.DELIMITER)

    def _word_continues_number(self, token_index: int) -> bool:
        """Return whether a word continues the number, as in `3 and 1/2` or `1/2 of it`."""
        if self.tokens[token_index].text == "of":
            return self.side.num_operations > 0 or self.side.has_percent
        return is_number_among_next_two(self.tokens, token_index)
