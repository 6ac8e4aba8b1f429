"""Finds equations of which the next one is no consequence: `2x + 3 = 11`, then `x = 5`.

Only equations in one letter, linear or quadratic with rational coefficients, that follow each
other with nothing between them but words of solving (`subtract 3 from both sides`). What is put
in is put in exactly; a rounded solution is not held to be false.

`left_side` and `right_side` find where the sides of an equality begin, and whether they are whole.
A left side ends at its relation, so that its start is looked for: the first place from which a
formula of numbers reaches the relation, with nothing before it that belongs to the formula.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from mclabel.answers.values import algebra
from mclabel.answers.values.monomials import NO_ATOMS, UNIT, NotClosed
from mclabel.judge.symbolic.deciding import value_of
from mclabel.judge.symbolic.lexing import Kind, Side, Sign
from mclabel.judge.symbolic.machine import MAX_SIGNS, Machine
from mclabel.judge.symbolic.vocabulary import CHANGE_BEFORE, SOLVING, Unread

MAX_EQUATIONS = 60
"""In one step."""
_FRACTION = re.compile(r"-?(?:[0-9]+/[0-9]+|\\frac\{-?[0-9]+\}\{-?[0-9]+\})")
_NUMBER = re.compile(r"[0-9.]+")
_MAX_BETWEEN = 60
"""Signs between two equations."""
_MAX_BITS = 200
"""Maximum number of bits of a coefficient."""
_CONSTANTS = frozenset("ei")
_ROUNDED = Fraction(1, 50)
"""Relative distance between a solution and one that may be rounded."""
_BETWEEN = (
    Kind.DELIMITER, Kind.STOP, Kind.NUMBER, Kind.OPERATOR, Kind.RELATION, Kind.OPEN, Kind.CLOSE,
    Kind.COMMAND, Kind.CONSTANT,
)  # fmt: skip

Quadratic = tuple[Fraction, Fraction, Fraction]
"""a, b, c of a x² + b x + c = 0."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation in one letter."""

    letter: str
    coefficients: Quadratic
    left: Side
    right: Side
    first: int
    """Index of the first of its signs."""
    last: int
    """Behind its signs."""
    is_continued: bool
    """Another relation follows its right side."""

    @property
    def degree(self) -> int:
        """1 or 2."""
        return 2 if self.coefficients[0] else 1

    @property
    def names(self) -> bool:
        """Return whether its left side is the bare letter."""
        return self.left.text == self.letter


def equations_of(signs: Sequence[Sign], relations: Sequence[int]) -> Iterator[Equation]:
    """The equations in one letter among the relations of a step, in order."""
    if not any(sign.kind is Kind.LETTER for sign in signs):
        return
    for at in relations[:MAX_EQUATIONS]:
        if signs[at].text != "=":
            continue
        left = left_side(signs, at, letters=True)
        if left is None:
            continue
        right = right_side(signs, at, letters=True)
        if right is None or left.vague or right.vague:
            continue
        letters = left.letters | right.letters
        if len(letters) != 1 or letters & _CONSTANTS:
            continue
        (letter,) = letters
        coefficients = _coefficients(left, right, letter)
        if coefficients is None:
            continue
        last = at + 1 + right.signs_used
        continued = last < len(signs) and signs[last].kind is Kind.RELATION
        yield Equation(
            letter, coefficients, left, right, at - left.signs_used, last, is_continued=continued
        )


def follows(first: Equation, second: Equation) -> str | None:
    """Why the second equation is certainly no consequence of the first, else None."""
    if first.letter != second.letter or first.is_continued or not _may_be_compared(first, second):
        return None
    if second.degree == 1:
        _, b, c = second.coefficients
        root = -c / b
        if _value(first.coefficients, root) == 0 or _is_rounded(first, second, root):
            return None
        return f"{second.letter} = {_plain(root)} does not solve {_written(first)}"
    if first.degree == 1 or _have_decimals(first, second):
        return None
    if _resultant(first.coefficients, second.coefficients) == 0:
        return None
    return f"{_written(first)} and {_written(second)} have no common solution"


def stand_together(between: Sequence[Sign], letter: str) -> bool:
    """Return whether nothing but words of solving stands between two equations."""
    if len(between) > _MAX_BETWEEN:
        return False
    kinds = {sign.kind for sign in between}
    if Kind.LETTER in kinds and Kind.RELATION in kinds:
        return False
    if Kind.WORD not in kinds and _is_list(between):
        return False
    for sign in between:
        if sign.kind is Kind.WORD:
            if any(word not in SOLVING for word in sign.text.lower().split()):
                return False
        elif sign.text == "?" or not (sign.kind in _BETWEEN or sign.text == letter):
            return False
    return True


def _is_list(between: Sequence[Sign]) -> bool:
    """Return whether a comma inside of a formula stands between two equations: `x = 3, x = 7`."""
    return any(
        sign.text in (",", ";")
        and (at + 1 == len(between) or between[at + 1].kind not in (Kind.DELIMITER, Kind.STOP))
        for at, sign in enumerate(between)
    )


def _may_be_compared(first: Equation, second: Equation) -> bool:
    """A value is no equation to solve; of two results in a row each may be one of two cases."""
    if first.names:
        return (
            second.names
            and first.right.literal is None
            and _FRACTION.fullmatch(first.right.text) is None
            and not are_branches(first.right.text, second.right.text)
        )
    return True


def are_branches(first: str, second: str) -> bool:
    """Return whether two results are made of the same numbers, as those of `a + b` and `a - b`."""
    return sorted(_NUMBER.findall(first)) == sorted(_NUMBER.findall(second))


def _coefficients(left: Side, right: Side, letter: str) -> Quadratic | None:
    a, b = value_of(left.text), value_of(right.text)
    if a is None or b is None:
        return None
    try:
        difference = algebra.add(a, algebra.negate(b))
    except NotClosed:
        return None
    if difference.den is not UNIT:
        return None
    coefficients = [Fraction(0)] * 3
    for mono, coefficient in difference.num.items():
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


def _value(coefficients: Quadratic, x: Fraction) -> Fraction:
    a, b, c = coefficients
    return (a * x + b) * x + c


def _resultant(first: Quadratic, second: Quadratic) -> Fraction:
    """Zero where two quadratics have a common root."""
    a, b, c = first
    d, e, f = second
    return (a * f - c * d) ** 2 - (a * e - b * d) * (b * f - c * e)


def _is_rounded(first: Equation, second: Equation, root: Fraction) -> bool:
    """Return whether the root may be a rounded one of the first equation."""
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
    if _have_decimals(first, second):
        return distance <= float(_ROUNDED) * max(1.0, abs(float(root)))
    exact = a == 0 and (first.coefficients[2] / first.coefficients[1]).denominator == 1
    return not exact and root.denominator == 1 and distance < 1


def _have_decimals(*equations: Equation) -> bool:
    return any(side.decimals for equation in equations for side in (equation.left, equation.right))


def _written(equation: Equation) -> str:
    return f"{equation.left.text} = {equation.right.text}"[:120]


def _plain(x: Fraction) -> str:
    return str(x) if max(abs(x.numerator), x.denominator) < 10**15 else "this value"


_MAX_STARTS = 10
"""Places that are tried as the start of a left side."""


def right_side(signs: Sequence[Sign], at: int, *, letters: bool = False) -> Side | None:
    """The side that begins behind the relation at `at`, or None where it is not read."""
    start = at + 1
    if start >= len(signs):
        return None
    try:
        side = Machine(signs, start, letters).run()
    except Unread:
        return None
    return None if _is_broken(signs, start + side.signs_used) else side


def _is_broken(signs: Sequence[Sign], at: int) -> bool:
    r"""Return whether a side goes on in the next line of a display: `2 \cdot 2 \\ \cdot 2`."""
    if at + 1 >= len(signs) or signs[at].text != "\\\\":
        return False
    following = signs[at + 1]
    return following.kind is Kind.OPERATOR or following.text in ("cdot", "times")


def left_side(signs: Sequence[Sign], at: int, *, letters: bool = False) -> Side | None:
    """The side that ends before the relation at `at`, or None where it is not read."""
    first = at
    while first > 0 and signs[first - 1].kind not in (Kind.STOP, Kind.RELATION):
        first -= 1
        if at - first > MAX_SIGNS:
            return None
    starts = [i for i in range(first, at) if _may_start(signs, i, first)]
    for start in starts[-_MAX_STARTS:]:
        try:
            side = Machine(signs, start, letters, goal=at).run()
        except Unread:
            continue
        if start + side.signs_used == at:
            return side if _clean_before(signs, start, first) else None
    return None


def _may_start(signs: Sequence[Sign], at: int, first: int) -> bool:
    sign = signs[at]
    if sign.kind in (Kind.WORD, Kind.STOP, Kind.DELIMITER, Kind.CLOSE, Kind.UNKNOWN):
        return False
    if sign.kind is Kind.OPERATOR and sign.text != "-":
        return False
    if sign.text == "{":  # elsewhere it opens an argument of what stands before it
        return at == first or signs[at - 1].kind is Kind.DELIMITER
    return at == first or signs[at - 1].kind in (Kind.WORD, Kind.DELIMITER, Kind.OPEN, Kind.CLOSE)


def _clean_before(signs: Sequence[Sign], start: int, first: int) -> bool:
    """Return whether nothing before a left side belongs to its formula."""
    at = start - 1
    while at >= first and signs[at].kind is Kind.DELIMITER:
        at -= 1
    opens = start - 1 - at > 1
    """One formula has been closed, and another one opened."""
    minus = signs[start].text == "-"
    if minus and not signs[start + 1].glued and not signs[start].math:
        return False  # an item of a list that was put on one line
    if at < first:
        if first == 0 or not minus:
            return True
        before = signs[first - 1]
        return before.kind is Kind.RELATION or before.text not in ("\\\\", "\n")
    before = signs[at]
    if before.kind is Kind.OPEN:
        return before.text != "{" or not minus
    if minus and signs[start].glued:
        return False  # `a-c`: the word before it is a letter
    if before.kind is not Kind.WORD:
        return opens and before.kind in (Kind.NUMBER, Kind.CLOSE, Kind.LETTER)
    word = before.text.lower().rpartition(" ")[2]
    if word in CHANGE_BEFORE:
        return False
    if _goes_on(signs, at, first):
        return False
    if word != "of":
        return True
    owner = signs[at - 1] if at > first else None
    if owner is None:
        return True
    return owner.kind is Kind.WORD and owner.text.lower() not in CHANGE_BEFORE


def _goes_on(signs: Sequence[Sign], at: int, first: int) -> bool:
    """Return whether an operator stands before the words before a side: `25 boys + his 1
    teacher`.
    """
    while at >= first and signs[at].kind in (Kind.WORD, Kind.DELIMITER):
        at -= 1
    return at >= first and signs[at].kind in (Kind.OPERATOR, Kind.COMMAND)
