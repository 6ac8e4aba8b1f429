"""Finds the options of multiple-choice problems, which are lettered A, B, ... in the text."""

from __future__ import annotations

import re

_OPTION = re.compile(r"(?:^|[\s(])([A-J])[).:]\s", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-J])\)?")
_MIN_OPTIONS = 2


def find_option_letters(text: str) -> str:
    """Return the letters of a problem's options, such as `ABCD`.

    The text is empty if the problem has fewer than two options.
    """
    count = 0
    for match in _OPTION.finditer(text):
        if match[1] == "A":
            count = 1
        elif match[1] == chr(ord("A") + count):
            count += 1
    return "ABCDEFGHIJ"[:count] if count >= _MIN_OPTIONS else ""


def is_missing_option(answer: str, text: str) -> bool:
    """Return whether a gold answer is a letter that is not among its problem's options.

    It is False if the problem has no options.

    Args:
        answer: gold answer of the problem.
        text: text of the problem.
    """
    letter = _LETTER.fullmatch(answer.strip())
    if letter is None:
        return False
    options = find_option_letters(text)
    return bool(options) and letter[1] not in options
