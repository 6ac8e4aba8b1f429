"""Texts of models, as people are shown them, and the kind that an answer looks like."""

from __future__ import annotations

import re

MAX_ANSWER = 80
"""Characters of an answer in a line of facts. Tests of programs are far longer."""
DESCRIBED = {
    "pool": "The solutions were selected from a pool: shares here are of the whole pool, each "
    "solution weighted by 1 / its probability.",
    "selection": "The solutions were selected from a pool by a rule, and none was drawn at random: "
    "figures describe the selection alone. Select with uniform_share above 0 for figures of the "
    "pool.",
}
"""What the quality of selected solutions' labels says, by `label_quality.described`."""
SELECTED = "Of the solutions that were selected, without weights, and not of their pool."
"""What other figures of such solutions say."""
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


# The kind of answer that a gold is, which most data sets lack.

MAX_READ = 200
"""Characters of an answer that are looked at."""

_PLAIN = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)"
_KINDS = (
    ("data", re.compile(r'\{\s*".*')),
    ("integer", re.compile(rf"{_PLAIN}(?:\.0*)?")),
    ("decimal", re.compile(r"[-+]?[\d,]*\.\d+")),
    ("percent", re.compile(r"[-+]?[\d,.]+\s*\\?%")),
    (
        "fraction",
        re.compile(
            rf"[-+]?\\[dt]?frac\s*+(?:{{{_PLAIN}}}|\d)\s*+(?:{{\d+}}|\d+)|{_PLAIN}\s*/\s*\d+"
        ),
    ),
    ("choice", re.compile(r"(?:\\text{)?\(?[A-H]\)?}?")),
    ("interval or point", re.compile(r"(?:\\left)?[\[(].*,[^,]*[\])]")),
    ("list", re.compile(r"[^,]*+,.*+")),
    ("expression", re.compile(r"[^\\^_=+*/]*+[\\^_=+*/].*+|[-+]?\d*+[a-z]|[-+]?\d++\s*+\w++")),
)


def answer_kind(answer: str) -> str:
    """`integer`, `fraction`, `choice`, `expression`, `text`, ...: by its looks alone."""
    text = " ".join(answer[:MAX_READ].strip().strip("$").split())
    return next((name for name, pattern in _KINDS if pattern.fullmatch(text)), "text")
