"""Sums of numbers with dots for most of them: `1 + 2 + ... + 100`."""

from __future__ import annotations

import re
from itertools import pairwise

_SUM = re.compile(r"\d{1,6}(?: ?\+ ?\d{1,6}){1,9} ?\+ ?\.\.\. ?\+ ?\d{1,9}")
_MAX_TERMS = 200
"""Of a geometric progression."""


def read_progression(text: str) -> int | None:
    """The sum of an arithmetic or, from three terms on, a geometric progression."""
    if not _SUM.fullmatch(text):
        return None
    *terms, last = [int(part) for part in re.split(r"[+. ]+", text)]
    steps = {b - a for a, b in pairwise(terms)}
    if len(steps) == 1:
        (step,) = steps
        if step > 0 and last > terms[-1] and (last - terms[0]) % step == 0:
            count = (last - terms[0]) // step + 1
            return count * (terms[0] + last) // 2
        return None
    return _geometric(terms, last) if len(terms) > 2 else None


def _geometric(terms: list[int], last: int) -> int | None:
    first, second = terms[:2]
    if first == 0 or second % first or second <= first:
        return None
    ratio = second // first
    if any(b != a * ratio for a, b in pairwise(terms)):
        return None
    total, term = 0, first
    for _ in range(_MAX_TERMS):
        total += term
        if term >= last:
            return total if term == last else None
        term *= ratio
    return None
