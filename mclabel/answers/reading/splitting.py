r"""Splits a normalised text at its top level, which is outside brackets, braces and matrices."""

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


def split_outside_brackets(text: str, separators: re.Pattern[str]) -> list[str]:
    """Split a text at the top-level matches of `separators`, and strip the parts."""
    parts, start = [], 0
    for match in separators.finditer(text):
        if _find_bracket_depth_at(text, match.start()):
            continue
        parts.append(text[start : match.start()].strip())
        start = match.end()
    parts.append(text[start:].strip())
    return parts


def split_at_list_commas(text: str) -> list[str]:
    """Split a text at semicolons or, if it has none, at commas that are not thousands separators.

    If some commas of the text are followed by a space, a comma without a space between up to three
    digits and three digits is a thousands separator, as in 1,234.
    """
    if ";" in text:
        parts = split_outside_brackets(text, _SEMICOLON)
        if len(parts) > 1:
            return parts
    parts = split_outside_brackets(text, _COMMA)
    if len(parts) < 3 or not _SPACED_COMMA.search(text):
        return parts
    raw = split_commas_keeping_space(text)
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


def split_commas_keeping_space(text: str) -> list[str]:
    """Split a text at top-level commas, and keep the spaces of the parts."""
    parts, start = [], 0
    for match in _COMMA.finditer(text):
        if not _find_bracket_depth_at(text, match.start()):
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]


_COMMA, _SEMICOLON, _SPACED_COMMA = re.compile(","), re.compile(";"), re.compile(", ")


def split_enclosing_brackets(
    text: str, pairs: Sequence[tuple[str, str]]
) -> tuple[str, str, str] | None:
    """Split a text that one pair of brackets encloses; return None for any other text.

    The parts are the opening bracket, the inside and the closing bracket.

    Args:
        text: a normalised text.
        pairs: allowed pairs of brackets. A pair may have different kinds, as for half-open
            intervals.
    """
    for opening, closing in pairs:
        if not (text.startswith(opening) and text.endswith(closing)):
            continue
        if len(text) < len(opening) + len(closing):
            continue
        inside = text[len(opening) : -len(closing)]
        if has_balanced_brackets(inside):
            return opening, inside.strip(), closing
    return None


def has_balanced_brackets(text: str) -> bool:
    """Return whether every bracket of a text is closed."""
    depths = _compute_depth_after_brackets(text)
    return depths is not None and (not depths or depths[-1][1] == 0)


def _find_bracket_depth_at(text: str, position: int) -> int:
    depths = _compute_depth_after_brackets(text)
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
def _compute_depth_after_brackets(text: str) -> tuple[tuple[int, int], ...] | None:
    """Return pairs of the index of each bracket and the depth of nesting after it.

    The result is None if a closing bracket has no opening one.
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
