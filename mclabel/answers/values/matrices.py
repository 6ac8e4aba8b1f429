"""Arithmetic of matrices whose entries are closed forms."""

from __future__ import annotations

from mclabel.answers.values import algebra
from mclabel.answers.values.algebra import Value
from mclabel.answers.values.forms import Matrix, value_of
from mclabel.answers.values.monomials import NotClosed

Grid = tuple[tuple[Value, ...], ...]
"""Rows of equal length."""


def entries(matrix: Matrix) -> Grid | None:
    """The entries of a matrix; None if one is not a formula."""
    rows = tuple(tuple(map(value_of, row)) for row in matrix.rows)
    known = tuple(tuple(value for value in row if value is not None) for row in rows)
    return known if [*map(len, known)] == [*map(len, rows)] else None


def added(left: Grid, right: Grid) -> Grid:
    """The sum.

    Raises:
        NotClosed: the two are not of one shape.
    """
    if [*map(len, left)] != [*map(len, right)]:
        raise NotClosed("matrices of different shapes")
    return tuple(
        tuple(algebra.add(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(left, right, strict=True)
    )


def scaled(factor: Value, grid: Grid) -> Grid:
    """A number times a matrix."""
    return tuple(tuple(algebra.multiply(factor, value) for value in row) for row in grid)


def product(left: Grid, right: Grid) -> Grid:
    """The matrix product.

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
    """By cofactors of the first row; None of what is not square, or too large for that."""
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
