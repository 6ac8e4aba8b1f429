"""Nodes of a regular expression's parse tree, and the characters that they match."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from re import _constants as names  # type: ignore[attr-defined]
from typing import Any

REPEATS = (names.MAX_REPEAT, names.MIN_REPEAT, names.POSSESSIVE_REPEAT)
CHARACTERS = (names.LITERAL, names.NOT_LITERAL, names.ANY, names.IN)
_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    names.CATEGORY_DIGIT: str.isdecimal,
    names.CATEGORY_NOT_DIGIT: lambda c: not c.isdecimal(),
    names.CATEGORY_SPACE: str.isspace,
    names.CATEGORY_NOT_SPACE: lambda c: not c.isspace(),
    names.CATEGORY_WORD: lambda c: c.isalnum() or c == "_",
    names.CATEGORY_NOT_WORD: lambda c: not (c.isalnum() or c == "_"),
}


def fits(op: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """Return a function that is True for the characters that a node matches."""
    if op is names.ANY:
        return lambda c: bool(flags & re.DOTALL) or c != "\n"
    if op is names.LITERAL:
        return lambda c: value in _cases(c, flags)
    if op is names.NOT_LITERAL:
        return lambda c: value not in _cases(c, flags)
    negated = value[0][0] is names.NEGATE
    members = value[1:] if negated else value

    def fit(c: str) -> bool:
        return any(_is_member(c, op, member, flags) for op, member in members) is not negated

    return fit


def _cases(c: str, flags: int) -> set[int]:
    if not flags & re.IGNORECASE:
        return {ord(c)}
    return {ord(x) for x in (c, c.lower(), c.upper()) if len(x) == 1}


def _is_member(c: str, op: Any, value: Any, flags: int) -> bool:
    if op is names.CATEGORY:
        inside = _CATEGORIES[value]
        if flags & re.ASCII and not c.isascii():
            return "NOT" in str(value)
        return inside(c)
    if op is names.RANGE:
        return any(value[0] <= x <= value[1] for x in _cases(c, flags))
    return value in _cases(c, flags)


def nodes(items: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every node of a parse tree, outer nodes first."""
    for op, value in items:
        yield op, value
        if op in REPEATS:
            yield from nodes(value[2])
        elif op is names.BRANCH:
            for branch in value[1]:
                yield from nodes(branch)
        elif op is names.SUBPATTERN:
            yield from nodes(value[3])
        elif op is names.ATOMIC_GROUP:
            yield from nodes(value)
        elif op in (names.ASSERT, names.ASSERT_NOT):
            yield from nodes(value[1])
