"""Forms that an answer can have: numbers, formulas, collections, sets of reals, words.

`added`, `scaled`, `product` and `determinant` compute with matrices whose entries are closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal as OneOf

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value, number
from mclabel.answers.values.literals import Literal
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.units import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number written as such."""

    literal: Literal


@dataclass(frozen=True, slots=True)
class Closed:
    """A formula that is exact arithmetic to us."""

    value: Value
    digits: str = ""
    """The text in upper case where it could be a number in a base above ten: `2A`."""
    magnitude: Literal | None = None
    """The number that it is if its letters scale it: `2.6B`, `3k`."""


@dataclass(frozen=True, slots=True)
class Name:
    """Several letters and nothing else: a name such as ABC, or a product such as xy."""

    letters: str
    value: Value | None
    """The letters read as a product; None where they are too many for one."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A formula that only sympy can read."""

    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount of something; percent and degrees too."""

    amount: Form
    unit: Unit


@dataclass(frozen=True, slots=True)
class Sequence:
    """Several answers."""

    kind: OneOf["tuple", "list", "set", "bracket", "alternatives"]
    """`list` is bare (1, 2), `bracket` is [1, 2], `alternatives` are joined by "or"."""
    items: tuple[Form, ...]
    single: Form | None = None
    """The form if the collection may be one value: 2,74 with a decimal comma, the point C(10, 3) a
    binomial."""
    ordered: bool = False
    """True for a bare list whose order counts, as it goes on (1, 3, 5, ...)."""


@dataclass(frozen=True, slots=True)
class Approximated:
    """A value with an approximation behind it: `2√3 ≈ 3.46`."""

    exact: Form
    stated: Form


@dataclass(frozen=True, slots=True)
class Remarked:
    """A value with a remark: `42 (forty-two)`, `7 as n → ∞`."""

    value: Form
    remark: Form | None
    """The value said in another way; None where a condition limits the claim."""
    condition: str
    """The condition as it is written; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One interval; a point where both ends are one closed value."""

    low: Value | None
    """None is minus infinity."""
    low_closed: bool
    high: Value | None
    high_closed: bool


@dataclass(frozen=True, slots=True)
class Reals:
    """A union of intervals, disjoint and in order."""

    pieces: tuple[Piece, ...]
    variable: str = ""
    """Variable of the inequality that the set was read from, if any."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An inequality in several variables: `difference` is positive, or not negative."""

    difference: Value
    strict: bool


@dataclass(frozen=True, slots=True)
class Matrix:
    """Rows of entries."""

    rows: tuple[tuple[Form, ...], ...]
    determinant: bool = False


@dataclass(frozen=True, slots=True)
class Ratio:
    """3:5 or 1:2:3."""

    terms: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class Clock:
    """A time of day."""

    seconds: int
    """Seconds since midnight, or since the last 12 o'clock if `half` is empty."""
    half: OneOf["", "am", "pm", "24"]
    ratio: Ratio | None = None
    """The time read as a ratio, where it names no half of the day."""


@dataclass(frozen=True, slots=True)
class Based:
    """A number in a stated base."""

    digits: str
    base: int
    value: Fraction


@dataclass(frozen=True, slots=True)
class Choice:
    """A letter of multiple choice, with what it stands for if that is given."""

    letter: str
    content: Form | None


@dataclass(frozen=True, slots=True)
class Equation:
    """Two sides; `label` where the left one only names what the right one is."""

    left: Form
    right: Form
    label: str


@dataclass(frozen=True, slots=True)
class Words:
    """Plain words, lower-cased, without articles."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Special:
    """`no solution`, `∞`, `-∞`, `undefined`, `infinitely many`, `empty text`."""

    name: str


Form = (
    Number | Closed | Opaque | Quantity | Sequence | Reals | Relation | Matrix | Ratio | Clock
    | Based | Choice | Equation | Words | Special | Name | Approximated | Remarked
)  # fmt: skip

Reader = Callable[[str], Form]
"""Function that reads a part of a text."""


def value_of(form: Form) -> Value | None:
    """Return the closed form of a number or a formula, else None."""
    match form:
        case Number(literal):
            return number(literal.value)
        case Closed(value=value) | Name(value=value):
            return value
    return None


Grid = tuple[tuple[Value, ...], ...]
"""Rows of equal length."""


def entries(matrix: Matrix) -> Grid | None:
    """Return the entries of a matrix; None if an entry is not a formula."""
    rows = tuple(tuple(map(value_of, row)) for row in matrix.rows)
    defined_rows = tuple(tuple(value for value in row if value is not None) for row in rows)
    return defined_rows if [*map(len, defined_rows)] == [*map(len, rows)] else None


def added(left: Grid, right: Grid) -> Grid:
    """Return the sum.

    Raises:
        NotClosed: the two have different shapes.
    """
    if [*map(len, left)] != [*map(len, right)]:
        raise NotClosed("matrices of different shapes")
    return tuple(
        tuple(algebra.add(a, b) for a, b in zip(left_row, right_row, strict=True))
        for left_row, right_row in zip(left, right, strict=True)
    )


def scaled(factor: Value, grid: Grid) -> Grid:
    """Return a number times a matrix."""
    return tuple(tuple(algebra.multiply(factor, value) for value in row) for row in grid)


def product(left: Grid, right: Grid) -> Grid:
    """Return the matrix product.

    Raises:
        NotClosed: the two cannot be multiplied.
    """
    if len(left[0]) != len(right):
        raise NotClosed("matrices that cannot be multiplied")
    return tuple(
        tuple(_dot(row, [other[j] for other in right]) for j in range(len(right[0])))
        for row in left
    )


def _dot(row: tuple[Value, ...], column: list[Value]) -> Value:
    total = algebra.number(0)
    for a, b in zip(row, column, strict=True):
        total = algebra.add(total, algebra.multiply(a, b))
    return total


def determinant(grid: Grid) -> Value | None:
    """Return the determinant by cofactors of the first row; None if the grid is not square, or too
    large.
    """
    size = len(grid)
    if any(len(row) != size for row in grid) or size > _MAX_DETERMINANT:
        return None
    if size == 1:
        return grid[0][0]
    total = algebra.number(0)
    for j, value in enumerate(grid[0]):
        minor = determinant(tuple((*row[:j], *row[j + 1 :]) for row in grid[1:]))
        if minor is None:
            return None
        term = algebra.multiply(value, minor)
        total = algebra.add(total, algebra.negate(term) if j % 2 else term)
    return total


_MAX_DETERMINANT = 4
