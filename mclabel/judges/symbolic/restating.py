"""Results that are said twice: `Total = 52 + 24`, then `Total = 78`.

Two values of one name that follow each other with nothing but words of solving between them are
two sides of an equality, as if they stood in one chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mclabel.judges.symbolic.formula import Side
from mclabel.judges.symbolic.lexing import Kind, Sign
from mclabel.judges.symbolic.sides import right_side
from mclabel.judges.symbolic.solving import MAX_EQUATIONS, are_branches, stand_together

_MAX_NAME = 10
"""Signs of a name."""
_OF_NAMES = (Kind.WORD, Kind.LETTER)
_ENDS = (Kind.STOP, Kind.DELIMITER, Kind.RELATION)
_CALCULATES = re.compile(r"[-+*/]")


@dataclass(frozen=True, slots=True)
class Result:
    """A name and what it is said to be."""

    name: tuple[str, ...]
    side: Side
    about: bool
    first: int
    """Of its signs."""
    last: int
    """Behind its signs."""
    is_continued: bool
    """Another relation follows."""


def results_of(signs: Sequence[Sign], relations: Sequence[int]) -> Iterator[Result]:
    """The results with a name in words among the relations of a step, in order."""
    for at in relations[:MAX_EQUATIONS]:
        first = at
        while first > 0 and signs[first - 1].kind not in _ENDS and at - first <= _MAX_NAME:
            first -= 1
        name = signs[first:at]
        if not 0 < len(name) <= _MAX_NAME or any(sign.kind not in _OF_NAMES for sign in name):
            continue
        if not any(sign.kind is Kind.WORD for sign in name):
            continue
        side = right_side(signs, at)
        if side is None:
            continue
        last = at + 1 + side.signs_used
        continued = last < len(signs) and signs[last].kind is Kind.RELATION
        words = tuple(sign.text.lower() for sign in name)
        yield Result(words, side, signs[at].text == "≈", first, last, is_continued=continued)


def is_restated(first: Result, second: Result, between: Sequence[Sign]) -> bool:
    """Whether the second result says what the first one comes to."""
    return (
        first.name == second.name
        and not first.is_continued
        and _CALCULATES.search(first.side.text) is not None
        and not first.side.text.startswith(second.side.text)
        and not are_branches(first.side.text, second.side.text)
        and stand_together(between, "")
    )
