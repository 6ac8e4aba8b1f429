"""Texts of models, as people are shown them."""

from __future__ import annotations

import re

MAX_ANSWER = 80
"""Characters of an answer in a line of facts. Tests of programs are far longer."""
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


def step_body(text: str) -> tuple[str, int]:
    """A step without the blank lines around it; its first line keeps its indentation, as of code.

    Returns:
        The text that is shown, and the number of characters that are left out before it.
    """
    found = _BLANK_LINES.match(text)
    left = found.end() if found else 0
    return text[left:].rstrip(), left


def cut(answer: str) -> str:
    """The beginning of an answer."""
    return answer if len(answer) <= MAX_ANSWER else f"{answer[: MAX_ANSWER - 1]}…"
