"""Options of multiple-choice problems: the letters that a problem lists."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?:^|[\s(])([A-J])[).:]\s", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-J])\)?")
_MIN_OPTIONS = 2


def listed_options(text: str) -> str:
    """Return the letters A, B, ... that a problem lists, in order; empty if it lists no two."""
    count = 0
    for match in _OPTION.finditer(text):
        if match[1] == "A":
            count = 1
        elif match[1] == chr(ord("A") + count):
            count += 1
    return "ABCDEFGHIJ"[:count] if count >= _MIN_OPTIONS else ""


def is_missing_option(answer: str, text: str) -> bool:
    """Return whether a gold is a letter beyond the options that its problem lists."""
    letter = _LETTER.fullmatch(answer.strip())
    if letter is None:
        return False
    options = listed_options(text)
    return bool(options) and letter[1] not in options
