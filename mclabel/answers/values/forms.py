"""Forms, which are parsed answers: numbers, formulas, collections, sets of reals, words.

The functions for matrices, such as `multiply_matrices` and `compute_determinant`, compute with
grids of closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal as OneOf

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import RationalExpression, make_number_value
from mclabel.answers.values.literals import Literal
from mclabel.answers.values.monomials import NotClosed
from mclabel.answers.values.units import Unit


@dataclass(frozen=True, slots=True)
class Number:
    """A rational number that is written as a number, such as 3/4 or 0.75."""

    literal: Literal


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """A formula whose value exact arithmetic can represent."""

    value: RationalExpression
    digits: str = ""
    """Text in upper case if it may be a number in a base above ten, such as `2A`; else empty."""
    magnitude: Literal | None = None
    """Value of a number such as `2.6B` or `3k` if its letter is a magnitude; None otherwise."""


@dataclass(frozen=True, slots=True)
class Name:
    """A string of several letters, which is a name such as ABC or a product such as xy."""

    letters: str
    value: RationalExpression | None
    """Product of the letters; None if there are too many letters for a product."""


@dataclass(frozen=True, slots=True)
class UnparsedText:
    """A text that only sympy may be able to parse."""

    text: str


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount with a unit, including percentages and degrees."""

    amount: Form
    unit: Unit


@dataclass(frozen=True, slots=True)
class ItemCollection:
    """A collection of several values."""

    kind: OneOf["tuple", "list", "set", "bracket", "alternatives"]
    """Notation of the collection: `tuple` is (1, 2), `list` is 1, 2 without brackets, `set` is
    {1, 2}, `bracket` is [1, 2], and `alternatives` are joined by "or"."""
    items: tuple[Form, ...]
    single_value: Form | None = None
    """The single value that the text may also denote: 2,74 with a decimal comma, or the binomial
    coefficient C(10, 3). None if there is no such value."""
    is_ordered: bool = False
    """True for a list with final dots (1, 3, 5, ...), whose order counts."""


@dataclass(frozen=True, slots=True)
class ApproximatedForm:
    """A value followed by its approximation: `2√3 ≈ 3.46`."""

    exact: Form
    approximation: Form
    """The approximation."""


@dataclass(frozen=True, slots=True)
class RemarkedForm:
    """A value with a remark: `42 (forty-two)`, `7 as n → ∞`."""

    value: Form
    remark: Form | None
    """The value in other words or notation; None if there is a condition instead."""
    condition: str
    """The condition as the answer writes it; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval, or a single point if both ends are the same closed end."""

    low: RationalExpression | None
    """Lower end; None for minus infinity."""
    is_low_closed: bool
    """True if the lower end belongs to the interval."""
    high: RationalExpression | None
    """Upper end; None for infinity."""
    is_high_closed: bool
    """True if the upper end belongs to the interval."""


@dataclass(frozen=True, slots=True)
class Reals:
    """A set of real numbers as a union of disjoint intervals in increasing order."""

    pieces: tuple[Interval, ...]
    variable: str = ""
    """Variable of the inequality that the set was parsed from; empty for other notations."""


@dataclass(frozen=True, slots=True)
class Relation:
    """An inequality in several variables, in the form `difference` > 0 or `difference` ≥ 0."""

    difference: RationalExpression
    is_strict: bool
    """True for >, False for ≥."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix or its determinant."""

    rows: tuple[tuple[Form, ...], ...]
    is_determinant: bool = False
    """True if the matrix is between vertical bars, which denote its determinant."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio such as 3:5 or 1:2:3."""

    terms: tuple[Form, ...]


@dataclass(frozen=True, slots=True)
class TimeOfDay:
    """A time of day."""

    seconds: int
    """Seconds since midnight, or since the last 12 o'clock if `half` is empty."""
    day_half: OneOf["", "am", "pm", "24"]
    """Half of the day, `24` for a 24-hour time such as 16:30, or empty if it is not stated."""
    ratio: Ratio | None = None
    """The ratio that the text may also denote; None if the text has am or pm."""


@dataclass(frozen=True, slots=True)
class BasedNumber:
    """A number in a stated base."""

    digits: str
    base: int
    value: Fraction


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a multiple-choice problem."""

    letter: str
    content: Form | None
    """Content of the option; None if the answer gives only the letter."""


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation, or a value with a name."""

    left: Form
    right: Form
    label: str
    """Name of the value on the right side, such as `x` or `f(x)`; empty for other equations."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words in lower case, without filler words at the start."""

    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SpecialValue:
    """A special value that is not a number, such as infinity."""

    name: str
    """For example `no solution`, `all reals`, `∞`, `-∞`, `undefined` or `empty text`."""


Form = (
    Number | ClosedForm | UnparsedText | Quantity | ItemCollection | Reals | Relation | Matrix
    | Ratio | TimeOfDay | BasedNumber | Choice | Equation | Words | SpecialValue | Name
    | ApproximatedForm | RemarkedForm
)  # fmt: skip

PartReader = Callable[[str], Form]
"""A function that parses a part of a text."""


def get_closed_value(form: Form) -> RationalExpression | None:
    """Return the closed form of a number, formula or product of letters; None for other forms."""
    match form:
        case Number(literal):
            return make_number_value(literal.value)
        case ClosedForm(value=value) | Name(value=value):
            return value
    return None


Grid = tuple[tuple[RationalExpression, ...], ...]
"""Rows of equal length, whose entries are closed forms."""


def get_cell_values(matrix: Matrix) -> Grid | None:
    """Return the entries of a matrix as closed forms; None if an entry is not a closed form."""
    rows = tuple(tuple(map(get_closed_value, row)) for row in matrix.rows)
    defined_rows = tuple(tuple(value for value in row if value is not None) for row in rows)
    return defined_rows if [*map(len, defined_rows)] == [*map(len, rows)] else None


def add_matrices(left: Grid, right: Grid) -> Grid:
    """Return the sum of two matrices.

    Raises:
        NotClosed: the matrices have different shapes.
    """
    if [*map(len, left)] != [*map(len, right)]:
        raise NotClosed("matrices of different shapes")
    return tuple(
        tuple(algebra.add(a, b) for a, b in zip(left_row, right_row, strict=True))
        for left_row, right_row in zip(left, right, strict=True)
    )


def scale_matrix(factor: RationalExpression, grid: Grid) -> Grid:
    """Return the product of a number and a matrix."""
    return tuple(tuple(algebra.multiply(factor, value) for value in row) for row in grid)


def multiply_matrices(left: Grid, right: Grid) -> Grid:
    """Return the product of two matrices.

    Raises:
        NotClosed: the shapes of the matrices do not fit.
    """
    if len(left[0]) != len(right):
        raise NotClosed("matrices that cannot be multiplied")
    return tuple(
        tuple(
            _multiply_row_by_column(row, [other[j] for other in right])
            for j in range(len(right[0]))
        )
        for row in left
    )


def _multiply_row_by_column(
    row: tuple[RationalExpression, ...], column: list[RationalExpression]
) -> RationalExpression:
    total = algebra.make_number_value(0)
    for a, b in zip(row, column, strict=True):
        total = algebra.add(total, algebra.multiply(a, b))
    return total


def compute_determinant(grid: Grid) -> RationalExpression | None:
    """Return the determinant of a matrix by cofactors of the first row; None if the matrix is not
    square or is larger than 4×4.
    """
    size = len(grid)
    if any(len(row) != size for row in grid) or size > _MAX_DETERMINANT:
        return None
    if size == 1:
        return grid[0][0]
    total = algebra.make_number_value(0)
    for j, value in enumerate(grid[0]):
        minor = compute_determinant(tuple((*row[:j], *row[j + 1 :]) for row in grid[1:]))
        if minor is None:
            return None
        term = algebra.multiply(value, minor)
        total = algebra.add(total, algebra.negate(term) if j % 2 else term)
    return total


_MAX_DETERMINANT = 4
