"""Figures as JSON, texts of models as people are shown them, and where the pages' files lie."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
"""Styles, scripts and templates of the pages."""
DIGITS = 10
"""Significant ones kept: the order in which a library adds up floats may change the last ones."""


def json_text(content: Any) -> str:
    """Dataclasses, mappings and sequences of figures as indented JSON with a line end.

    Floats that are no number (NaN, infinite) become null, as what is not known does. What UTF-8
    cannot hold, such as a byte of a file's name, is escaped.
    """
    text = json.dumps(_plain(content), indent=1, ensure_ascii=False, allow_nan=False)
    return text.encode(errors="backslashreplace").decode() + "\n"


def _plain(content: Any) -> Any:
    if is_dataclass(content):
        return {field.name: _plain(getattr(content, field.name)) for field in fields(content)}
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}") if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _plain(item) for key, item in content.items()}
    if isinstance(content, list | tuple | range):
        return [_plain(item) for item in content]
    if hasattr(content, "tolist"):  # an array
        return _plain(content.tolist())
    return content


MAX_ANSWER = 80
"""Characters of an answer in a line of facts. Tests of programs are far longer."""
DESCRIBED = {
    "pool": "The solutions were selected from a pool: shares here are of the whole pool, each "
    "solution weighted by 1 / its probability.",
    "selection": "The solutions were selected from a pool by a rule, and none was drawn at random: "
    "figures describe the selection alone. Select with uniform_share above 0 for figures of the "
    "pool.",
}
"""Remarks on the label quality of selected solutions, by `label_quality.described`."""
SELECTED = "Of the solutions that were selected, without weights, and not of their pool."
"""Remark on other figures of such solutions."""
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


def step_body(text: str) -> tuple[str, int]:
    """A step without the blank lines around it; its first line keeps its indentation, as of code.

    Returns:
        The text that is shown, and the number of characters that are left out before it.
    """
    blank = _BLANK_LINES.match(text)
    start = blank.end() if blank else 0
    return text[start:].rstrip(), start


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
