"""The kind of answer that a gold is, which most data sets lack."""

from __future__ import annotations

import re

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
