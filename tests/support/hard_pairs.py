"""Pairs that need a worker, of any number and of a cost that can be chosen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

Pair = tuple[str, str]


def shifted_wave(number: int) -> Pair:
    """Equal; some 2,000 steps."""
    return f"\\sin({number}x+\\pi)+{number}", f"{number}-\\sin({number}x)"


def logarithm(number: int) -> Pair:
    """Equal; some 40,000 steps."""
    return f"\\ln({number + 5}x)", f"\\ln {number + 5}+\\ln x"


def double_angle(number: int) -> Pair:
    """Equal; some 67,000 steps."""
    return f"{number}+\\cos 2x", f"{number + 1}-2\\sin^2 x"


def moduli(terms: int, number: int) -> Pair:
    """Not decided; some 200,000 steps for each term."""
    offsets = [number + 3 * i for i in range(terms)]
    return (
        "+".join(f"|x-{i}|" for i in offsets),
        "+".join(f"\\sqrt{{(x-{i})^2}}" for i in offsets),
    )


def mixture(makers: Iterable[tuple[int, Callable[[int], Pair]]]) -> list[Pair]:
    """So many pairs of each maker, in an order that is always the same."""
    pairs = [make(number) for count, make in makers for number in range(count)]
    random.Random(0).shuffle(pairs)
    return pairs
