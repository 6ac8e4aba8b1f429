"""How much text problems have: what is known of their cost before any engine runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mclabel.records import Problem


@dataclass(frozen=True, slots=True)
class Size:
    """Sums over problems."""

    num_problems: int = 0
    num_chars: int = 0
    """Of their texts."""
    num_squares: int = 0
    """Characters of each text squared: where every step of a solution is rolled out to its end,
    the cost rises with the square of its length."""

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> Size:
        """The size of some problems."""
        count = chars = squares = 0
        for problem in problems:
            length = len(problem.text)
            count, chars, squares = count + 1, chars + length, squares + length * length
        return cls(count, chars, squares)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.num_problems + other.num_problems,
            self.num_chars + other.num_chars,
            self.num_squares + other.num_squares,
        )

    def __sub__(self, other: Size) -> Size:
        return Size(
            self.num_problems - other.num_problems,
            self.num_chars - other.num_chars,
            self.num_squares - other.num_squares,
        )
