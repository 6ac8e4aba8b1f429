"""Words and units behind a number."""

from __future__ import annotations

from collections.abc import Sequence

from mclabel.judge.symbolic.lexing import Kind, Sign
from mclabel.judge.symbolic.vocabulary import CHANGE_BEHIND, END

_MAX_WORDS = 5
"""Words of a unit."""


class Unread(Exception):
    """The formula may go on in a way that is not known."""


def names_behind(signs: Sequence[Sign], start: int, goal: int) -> tuple[set[str], int]:
    """The words of a unit, and the place behind them.

    Raises:
        Unread: a word changes the number before it.
    """
    at = start
    names: set[str] = set()
    while at < len(signs) and signs[at].kind is Kind.WORD:
        pieces = signs[at].text.lower().split()
        if any(piece in CHANGE_BEHIND for piece in pieces):
            if at == start or at < goal < len(signs):
                raise Unread
            break
        if (pieces and pieces[0] in END) or at - start == _MAX_WORDS:
            break
        names.update(pieces)
        at += 1
    return names, at


def is_number_near(signs: Sequence[Sign], at: int) -> bool:
    """Whether a number or a word for one stands at most two signs behind a place."""
    return any(
        sign.kind is Kind.NUMBER or sign.text.lower() in ("half", "third", "quarter")
        for sign in signs[at + 1 : at + 3]
    )


def past_power(signs: Sequence[Sign], at: int) -> tuple[int, Sign | None]:
    """Behind the square of a unit: `cm^2`, `cm^{2}`."""
    if at < len(signs) and signs[at].text == "^":
        if at + 1 < len(signs) and signs[at + 1].kind is Kind.NUMBER:
            at += 2
        elif at + 3 < len(signs) and signs[at + 1].text == "{" and signs[at + 3].text == "}":
            at += 4
        else:
            raise Unread
    return at, signs[at] if at < len(signs) else None


def literal_of(parts: Sequence[str]) -> str | None:
    """The number that the parts are, with its sign and its percent sign."""
    body = list(parts)
    while body and body[0] in ("-", "(", "{") and len(body) > 1:
        body = body[1:]
    while body and body[-1] in ("%", ")", "}"):
        body = body[:-1]
    return body[0] if len(body) == 1 and body[0][0] in "0123456789." else None
