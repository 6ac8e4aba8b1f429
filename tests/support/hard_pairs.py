"""Pairs of gold and answer that need a worker, in any number and with a chosen cost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Pair = tuple[str, str]


def shifted_wave(number: int) -> Pair:
    """Return an equal pair that costs about 2,000 steps."""
    return f"\\sin({number}x+\\pi)+{number}", f"{number}-\\sin({number}x)"


def logarithm(number: int) -> Pair:
    """Return an equal pair that costs about 40,000 steps."""
    return f"\\ln({number + 5}x)", f"\\ln {number + 5}+\\ln x"


def double_angle(number: int) -> Pair:
    """Return an equal pair that costs about 67,000 steps."""
    return f"{number}+\\cos 2x", f"{number + 1}-2\\sin^2 x"


def mixture(makers: Iterable[tuple[int, Callable[[int], Pair]]]) -> list[Pair]:
    """Return pairs of each maker in the given numbers, in a fixed order."""
    pairs = [make(number) for count, make in makers for number in range(count)]
    random.Random(0).shuffle(pairs)
    return pairs
