"""How much text items have: what is known of their cost before any engine runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """Sums over items (problems of a labelling job, solutions of a scoring job)."""

    num_items: int = 0
    num_chars: int = 0
    """Characters of their texts."""
    num_squares: int = 0
    """Characters of each text squared: where every step of a solution is rolled out to its end,
    the cost rises with the square of its length."""

    @classmethod
    def of_lengths(cls, lengths: Iterable[int]) -> Size:
        """The size of items.

        Args:
            lengths: characters of each item's text.
        """
        count = chars = squares = 0
        for length in lengths:
            count, chars, squares = count + 1, chars + length, squares + length * length
        return cls(count, chars, squares)

    def __add__(self, other: Size) -> Size:
        return Size(
            self.num_items + other.num_items,
            self.num_chars + other.num_chars,
            self.num_squares + other.num_squares,
        )

    def __sub__(self, other: Size) -> Size:
        return Size(
            self.num_items - other.num_items,
            self.num_chars - other.num_chars,
            self.num_squares - other.num_squares,
        )
