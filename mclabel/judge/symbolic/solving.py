"""Finds equations that do not follow from the preceding equation: `2x + 3 = 11`, then `x = 5`.

Only linear and quadratic equations in one letter with rational coefficients are compared. Between
the two equations there may be only words of solving (`subtract 3 from both sides`). Values are
substituted exactly, but a rounded solution does not count as false.

`read_left_side` and `read_right_side` find the sides of an equality and check that they are
complete. The end of a left side is given by the relation (the sign of equality), and its beginning
is searched: the first token from which a formula reaches the relation, provided that no token
before it belongs to the formula.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mclabel.answers.values import algebra
from mclabel.answers.values.monomials import NO_ATOMS, UNIT, NotClosed
from mclabel.judge.symbolic.deciding import evaluate_formula
from mclabel.judge.symbolic.lexing import Side, Token, TokenKind
from mclabel.judge.symbolic.machine import MAX_SIGNS, SideParser
from mclabel.judge.symbolic.vocabulary import CHANGE_BEFORE, SOLVING, UnreadableFormula

MAX_EQUATIONS = 60
"""Maximum number of equations that are read in one step."""
_FRACTION = re.compile(r"-?(?:[0-9]+/[0-9]+|\\frac\{-?[0-9]+\}\{-?[0-9]+\})")
_NUMBER = re.compile(r"[0-9.]+")
_MAX_BETWEEN = 60
"""Maximum number of tokens between two equations that are compared."""
_MAX_BITS = 200
"""Maximum number of bits of a coefficient."""
_CONSTANTS = frozenset("ei")
_ROUNDED = Fraction(1, 50)
"""Largest relative difference between a solution and its rounded value."""
_BETWEEN = (
    TokenKind.DELIMITER, TokenKind.STOP, TokenKind.NUMBER, TokenKind.OPERATOR,
    TokenKind.RELATION, TokenKind.OPEN, TokenKind.CLOSE, TokenKind.COMMAND, TokenKind.CONSTANT,
)  # fmt: skip

Quadratic = tuple[Fraction, Fraction, Fraction]
"""Coefficients (a, b, c) of a x² + b x + c = 0."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation in one letter."""

    letter: str
    coefficients: Quadratic
    left: Side
    right: Side
    first_token_index: int
    """Index of the equation's first token."""
    end_token_index: int
    """Index after the equation's last token."""
    is_continued: bool
    """True if another relation follows the right side."""

    @property
    def degree(self) -> int:
        """Degree of the equation: 1 or 2."""
        return 2 if self.coefficients[0] else 1

    @property
    def is_value_of_letter(self) -> bool:
        """True if the left side is only the letter, so that the right side is its value."""
        return self.left.text == self.letter


def find_equations(tokens: Sequence[Token], relations: Sequence[int]) -> Iterator[Equation]:
    """Yield the equations in one letter among the relations of a step, in order.

    Args:
        tokens: tokens of the step.
        relations: indices of the relations among the tokens.
    """
    if not any(token.kind is TokenKind.LETTER for token in tokens):
        return
    for at in relations[:MAX_EQUATIONS]:
        if tokens[at].text != "=":
            continue
        left = read_left_side(tokens, at, are_letters_variables=True)
        if left is None:
            continue
        right = read_right_side(tokens, at, are_letters_variables=True)
        if right is None or left.is_ambiguous or right.is_ambiguous:
            continue
        letters = left.letters | right.letters
        if len(letters) != 1 or letters & _CONSTANTS:
            continue
        (letter,) = letters
        coefficients = _compute_coefficients(left, right, letter)
        if coefficients is None:
            continue
        last = at + 1 + right.num_tokens
        continued = last < len(tokens) and tokens[last].kind is TokenKind.RELATION
        yield Equation(
            letter, coefficients, left, right, at - left.num_tokens, last, is_continued=continued
        )


def explain_contradiction(first: Equation, second: Equation) -> str | None:
    """Return the reason why the second equation certainly does not follow from the first.

    None if the second equation follows, or may follow.
    """
    if (
        first.letter != second.letter
        or first.is_continued
        or not _may_be_expected_to_follow(first, second)
    ):
        return None
    if second.degree == 1:
        _, b, c = second.coefficients
        root = -c / b
        if _evaluate_quadratic(first.coefficients, root) == 0 or _may_be_rounded_root(
            first, second, root
        ):
            return None
        return (
            f"{second.letter} = {_format_fraction(root)} does not solve {_format_equation(first)}"
        )
    if first.degree == 1 or _contain_decimals(first, second):
        return None
    if _compute_resultant(first.coefficients, second.coefficients) == 0:
        return None
    return f"{_format_equation(first)} and {_format_equation(second)} have no common solution"


def are_consecutive_equations(tokens_between: Sequence[Token], letter: str) -> bool:
    """Return whether two equations are consecutive steps of solving for a letter.

    This is so if nothing but words such as "so" or "divide by 2" stands between them.

    Args:
        tokens_between: tokens between the equations.
        letter: the letter that is solved for, which may also stand between the equations.
    """
    if len(tokens_between) > _MAX_BETWEEN:
        return False
    kinds = {token.kind for token in tokens_between}
    if TokenKind.LETTER in kinds and TokenKind.RELATION in kinds:
        return False
    if TokenKind.WORD not in kinds and _are_separated_by_comma(tokens_between):
        return False
    for token in tokens_between:
        if token.kind is TokenKind.WORD:
            if any(word not in SOLVING for word in token.text.lower().split()):
                return False
        elif token.text == "?" or not (token.kind in _BETWEEN or token.text == letter):
            return False
    return True


def _are_separated_by_comma(tokens_between: Sequence[Token]) -> bool:
    """Return whether a comma within a formula separates two equations, as in `x = 3, x = 7`."""
    return any(
        token.text in (",", ";")
        and (
            at + 1 == len(tokens_between)
            or tokens_between[at + 1].kind not in (TokenKind.DELIMITER, TokenKind.STOP)
        )
        for at, token in enumerate(tokens_between)
    )


def _may_be_expected_to_follow(first: Equation, second: Equation) -> bool:
    """Return whether the second equation can be expected to follow from the first.

    After a final value such as `x = 5` no equation is expected to follow. Two results in a row may
    belong to two cases.
    """
    if first.is_value_of_letter:
        return (
            second.is_value_of_letter
            and first.right.single_number is None
            and _FRACTION.fullmatch(first.right.text) is None
            and not have_same_numbers(first.right.text, second.right.text)
        )
    return True


def have_same_numbers(first: str, second: str) -> bool:
    """Return whether two texts have the same numbers, as the two cases `3 + 4` and `3 - 4` do."""
    return sorted(_NUMBER.findall(first)) == sorted(_NUMBER.findall(second))


def _compute_coefficients(left: Side, right: Side, letter: str) -> Quadratic | None:
    a, b = evaluate_formula(left.text), evaluate_formula(right.text)
    if a is None or b is None:
        return None
    try:
        difference = algebra.add(a, algebra.negate(b))
    except NotClosed:
        return None
    if difference.denominator is not UNIT:
        return None
    coefficients = [Fraction(0)] * 3
    for mono, coefficient in difference.numerator.items():
        power = 0
        if mono != NO_ATOMS:
            ((name, exponent), *more) = mono
            if more or name != letter or exponent not in (1, 2):
                return None
            power = int(exponent)
        coefficients[2 - power] = Fraction(coefficient)
    if not (coefficients[0] or coefficients[1]):
        return None
    sizes = (max(abs(n.numerator), n.denominator).bit_length() for n in coefficients)
    return (coefficients[0], coefficients[1], coefficients[2]) if max(sizes) <= _MAX_BITS else None


def _evaluate_quadratic(coefficients: Quadratic, x: Fraction) -> Fraction:
    a, b, c = coefficients
    return (a * x + b) * x + c


def _compute_resultant(first: Quadratic, second: Quadratic) -> Fraction:
    """Return the resultant of two quadratics, which is zero if they have a common root."""
    a, b, c = first
    d, e, f = second
    return (a * f - c * d) ** 2 - (a * e - b * d) * (b * f - c * e)


def _may_be_rounded_root(first: Equation, second: Equation, root: Fraction) -> bool:
    """Return whether a root of the second equation may be a rounded root of the first."""
    a, b, c = (float(n) for n in first.coefficients)
    if a:
        inside = b * b - 4 * a * c
        if inside < 0:
            return False
        spread = math.sqrt(inside)
        solutions = [(-b + sign * spread) / (2 * a) for sign in (1, -1)]
    else:
        solutions = [-c / b]
    distance = min(abs(float(root) - x) for x in solutions)
    if _contain_decimals(first, second):
        return distance <= float(_ROUNDED) * max(1.0, abs(float(root)))
    exact = a == 0 and (first.coefficients[2] / first.coefficients[1]).denominator == 1
    return not exact and root.denominator == 1 and distance < 1


def _contain_decimals(*equations: Equation) -> bool:
    return any(side.decimals for equation in equations for side in (equation.left, equation.right))


def _format_equation(equation: Equation) -> str:
    return f"{equation.left.text} = {equation.right.text}"[:120]


def _format_fraction(x: Fraction) -> str:
    return str(x) if max(abs(x.numerator), x.denominator) < 10**15 else "this value"


_MAX_STARTS = 10
"""Maximum number of tokens that are tried as the beginning of a left side."""


def read_right_side(
    tokens: Sequence[Token], relation_index: int, *, are_letters_variables: bool = False
) -> Side | None:
    """Return the side after a relation; None if it cannot be read.

    Args:
        tokens: tokens of the step.
        relation_index: index of the relation (the sign of equality) among the tokens.
        are_letters_variables: True if single letters are read as variables.
    """
    start = relation_index + 1
    if start >= len(tokens):
        return None
    try:
        side = SideParser(tokens, start, are_letters_variables).run()
    except UnreadableFormula:
        return None
    return None if _continues_on_next_line(tokens, start + side.num_tokens) else side


def _continues_on_next_line(tokens: Sequence[Token], end_index: int) -> bool:
    r"""Return whether a side continues on the next line of a display: `2 \cdot 2 \\ \cdot 2`."""
    if end_index + 1 >= len(tokens) or tokens[end_index].text != "\\\\":
        return False
    following = tokens[end_index + 1]
    return following.kind is TokenKind.OPERATOR or following.text in ("cdot", "times")


def read_left_side(
    tokens: Sequence[Token], relation_index: int, *, are_letters_variables: bool = False
) -> Side | None:
    """Return the side before a relation; None if it cannot be read.

    Args:
        tokens: tokens of the step.
        relation_index: index of the relation (the sign of equality) among the tokens.
        are_letters_variables: True if single letters are read as variables.
    """
    first = relation_index
    while first > 0 and tokens[first - 1].kind not in (TokenKind.STOP, TokenKind.RELATION):
        first -= 1
        if relation_index - first > MAX_SIGNS:
            return None
    starts = [i for i in range(first, relation_index) if _may_begin_side(tokens, i, first)]
    for start in starts[-_MAX_STARTS:]:
        try:
            side = SideParser(tokens, start, are_letters_variables, end_index=relation_index).run()
        except UnreadableFormula:
            continue
        if start + side.num_tokens == relation_index:
            return side if _begins_whole_formula(tokens, start, first) else None
    return None


def _may_begin_side(tokens: Sequence[Token], index: int, part_start: int) -> bool:
    token = tokens[index]
    if token.kind in (
        TokenKind.WORD,
        TokenKind.STOP,
        TokenKind.DELIMITER,
        TokenKind.CLOSE,
        TokenKind.UNKNOWN,
    ):
        return False
    if token.kind is TokenKind.OPERATOR and token.text != "-":
        return False
    if token.text == "{":  # elsewhere it opens an argument of a command
        return index == part_start or tokens[index - 1].kind is TokenKind.DELIMITER
    return index == part_start or tokens[index - 1].kind in (
        TokenKind.WORD,
        TokenKind.DELIMITER,
        TokenKind.OPEN,
        TokenKind.CLOSE,
    )


def _begins_whole_formula(tokens: Sequence[Token], start: int, part_start: int) -> bool:
    """Return whether no token before a left side belongs to its formula.

    Args:
        tokens: tokens of the step.
        start: index of the first token of the left side.
        part_start: index of the first token of the sentence part that contains the left side.
    """
    at = start - 1
    while at >= part_start and tokens[at].kind is TokenKind.DELIMITER:
        at -= 1
    opens = start - 1 - at > 1
    """True if one formula has been closed and another one opened before the left side."""
    minus = tokens[start].text == "-"
    if minus and not tokens[start + 1].is_glued and not tokens[start].is_in_formula:
        return False  # a list item, joined to the line before
    if at < part_start:
        if part_start == 0 or not minus:
            return True
        before = tokens[part_start - 1]
        return before.kind is TokenKind.RELATION or before.text not in ("\\\\", "\n")
    before = tokens[at]
    if before.kind is TokenKind.OPEN:
        return before.text != "{" or not minus
    if minus and tokens[start].is_glued:
        return False  # `a-c`: the word before it is a letter
    if before.kind is not TokenKind.WORD:
        return opens and before.kind in (TokenKind.NUMBER, TokenKind.CLOSE, TokenKind.LETTER)
    word = before.text.lower().rpartition(" ")[2]
    if word in CHANGE_BEFORE or _operator_precedes_words(tokens, at, part_start):
        return False
    if word != "of":
        return True
    owner = tokens[at - 1] if at > part_start else None
    if owner is None:
        return True
    return owner.kind is TokenKind.WORD and owner.text.lower() not in CHANGE_BEFORE


def _operator_precedes_words(tokens: Sequence[Token], token_index: int, first: int) -> bool:
    """Return whether an operator precedes the words before a side, as in `boys + his 1 teacher`."""
    while token_index >= first and tokens[token_index].kind in (
        TokenKind.WORD,
        TokenKind.DELIMITER,
    ):
        token_index -= 1
    return token_index >= first and tokens[token_index].kind in (
        TokenKind.OPERATOR,
        TokenKind.COMMAND,
    )
