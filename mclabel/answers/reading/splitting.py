r"""Cuts a normalised text at its top level: outside of brackets, braces and matrices."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

_OPEN = {"(": ")", "[": "]", "{": "}", "\\{": "\\}", "\\langle": "\\rangle", "\\lfloor": "\\rfloor"}
_BRACKET = re.compile(
    r"\\begin\s*\{[a-z*]+\}|\\end\s*\{[a-z*]+\}|\\\{|\\\}|\\langle|\\rangle|\\lfloor|\\rfloor|\\\\|"
    r"[()\[\]{}]"
)
_THREE_DIGITS = re.compile(r"\d{3}(?:\.\d+)?(?!\d)")
_ENDS_SHORT_NUMBER = re.compile(r"(?:^|[^\d,.])\d{1,3}(?:,\d{3})*$")


def split(text: str, separators: re.Pattern[str]) -> list[str]:
    """Return the parts between matches of `separators` at the top level, stripped."""
    parts, start = [], 0
    for match in separators.finditer(text):
        if _depth_at(text, match.start()):
            continue
        parts.append(text[start : match.start()].strip())
        start = match.end()
    parts.append(text[start:].strip())
    return parts


def split_commas(text: str) -> list[str]:
    """Return the parts between commas or semicolons, without tearing 1,234 where a group is meant.

    Where some commas are followed by a space, one that is not and stands between a number of up
    to three digits and a group of three is a thousands separator.
    """
    if ";" in text:
        parts = split(text, _SEMICOLON)
        if len(parts) > 1:
            return parts
    parts = split(text, _COMMA)
    if len(parts) < 3 or not _SPACED_COMMA.search(text):
        return parts
    raw = split_keeping_space(text)
    joined = [raw[0]]
    for part in raw[1:]:
        if (
            not part.startswith(" ")
            and _THREE_DIGITS.match(part)
            and _ENDS_SHORT_NUMBER.search(joined[-1].strip())
        ):
            joined[-1] += f",{part}"
        else:
            joined.append(part)
    return [part.strip() for part in joined]


def split_keeping_space(text: str) -> list[str]:
    """Return the parts between top-level commas, as they stand."""
    parts, start = [], 0
    for match in _COMMA.finditer(text):
        if not _depth_at(text, match.start()):
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


_COMMA, _SEMICOLON, _SPACED_COMMA = re.compile(","), re.compile(";"), re.compile(", ")


def enclosed(text: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Return the opening, the inside and the closing, if one pair of brackets holds all of the
    text.

    `pairs` may mix brackets, as half-open intervals do.
    """
    for opening, closing in pairs:
        if not (text.startswith(opening) and text.endswith(closing)):
            continue
        if len(text) < len(opening) + len(closing):
            continue
        inside = text[len(opening) : -len(closing)]
        if is_balanced(inside):
            return opening, inside.strip(), closing
    return None


def is_balanced(text: str) -> bool:
    """Return whether every bracket is closed."""
    depths = _depths(text)
    return depths is not None and (not depths or depths[-1][1] == 0)


def _depth_at(text: str, position: int) -> int:
    depths = _depths(text)
    if depths is None:
        return 1
    low, high = 0, len(depths)
    while low < high:
        middle = (low + high) // 2
        if depths[middle][0] <= position:
            low = middle + 1
        else:
            high = middle
    return depths[low - 1][1] if low else 0


@lru_cache(maxsize=64)
def _depths(text: str) -> tuple[tuple[int, int], ...] | None:
    """Return the positions where the depth of nesting changes, and to what; None if it falls below
    zero.
    """
    changes, depth = [], 0
    for match in _BRACKET.finditer(text):
        token = match[0]
        if token == "\\\\":
            continue
        if token in _OPEN or token.startswith("\\begin"):
            depth += 1
        else:
            depth -= 1
            if depth < 0:
                return None
        changes.append((match.start(), depth))
    return tuple(changes)
