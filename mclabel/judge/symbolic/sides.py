"""The two sides of an equality: where they begin, and whether they are whole.

A left side ends at its relation, so that its start is looked for: the first place from which a
formula of numbers reaches the relation, with nothing before it that belongs to the formula.
"""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.judge.symbolic.lexing import Kind, Side, Sign
from mclabel.judge.symbolic.machine import MAX_SIGNS, Machine
from mclabel.judge.symbolic.vocabulary import CHANGE_BEFORE, Unread

_MAX_STARTS = 10
"""Places that are tried as the start of a left side."""


def right_side(signs: Sequence[Sign], at: int, *, letters: bool = False) -> Side | None:
    """The side that begins behind the relation at `at`, or None where it is not read."""
    start = at + 1
    if start >= len(signs):
        return None
    try:
        return Machine(signs, start, letters).run()
    except Unread:
        return None


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
    """Whether nothing before a left side belongs to its formula."""
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
    """Whether an operator stands before the words before a side: `25 boys + his 1 teacher`."""
    while at >= first and signs[at].kind in (Kind.WORD, Kind.DELIMITER):
        at -= 1
    return at >= first and signs[at].kind in (Kind.OPERATOR, Kind.COMMAND)
