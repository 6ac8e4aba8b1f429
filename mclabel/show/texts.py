"""Formats results as JSON, and steps and answers for display. Loads static files of web pages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

STATIC = Path(__file__).parent / "static"
"""Folder of the styles, scripts and templates of the pages."""
DIGITS = 10
"""Significant digits of floats in JSON. Further digits can depend on a library's summation order.
"""


def format_json(content: Any) -> str:
    """Return dataclasses, mappings and sequences of numbers as indented JSON with a line end.

    NaN and infinite floats become null, like unknown values. Characters that UTF-8 cannot encode,
    such as undecodable bytes of a file name, are escaped.
    """
    text = json.dumps(
        _convert_to_json_types(content), indent=1, ensure_ascii=False, allow_nan=False
    )
    return text.encode(errors="backslashreplace").decode() + "\n"


def _convert_to_json_types(content: Any) -> Any:
    if is_dataclass(content):
        return {
            field.name: _convert_to_json_types(getattr(content, field.name))
            for field in fields(content)
        }
    if isinstance(content, float):
        return float(f"{content:.{DIGITS}g}") if math.isfinite(content) else None
    if isinstance(content, Mapping):
        return {key: _convert_to_json_types(item) for key, item in content.items()}
    if isinstance(content, list | tuple | range):
        return [_convert_to_json_types(item) for item in content]
    if hasattr(content, "tolist"):  # an array
        return _convert_to_json_types(content.tolist())
    return content


MAX_ANSWER = 80
"""Maximum characters of an answer in a line of facts. Answers that are unit tests are much longer.
"""
DESCRIBED = {
    "pool": "The solutions were selected from a pool. Shares here are estimates for the whole "
    "pool: each solution is weighted by 1 / its selection probability.",
    "selection": "The solutions were selected from a pool by a rule, and none was drawn at random. "
    "So these figures describe only the selection. To estimate figures for the pool, select with "
    "uniform_share above 0.",
}
"""Remarks on the label quality of selected solutions, by the value of `label_quality.described`."""
SELECTED = "These figures describe only the selected solutions, without weights, not their pool."
"""Remark on other statistics of selected solutions."""
_BLANK_LINES = re.compile(r"(?:[^\S\n]*\n)*")


def strip_step_text(text: str) -> tuple[str, int]:
    """Remove the blank lines around a step, and keep the indentation of its first line for code.

    Returns:
        The text to show, and the number of characters removed before it.
    """
    blank_lines = _BLANK_LINES.match(text)
    start = blank_lines.end() if blank_lines else 0
    return text[start:].rstrip(), start


def shorten_answer(answer: str) -> str:
    """Return at most MAX_ANSWER characters of an answer, with … in place of the others."""
    return answer if len(answer) <= MAX_ANSWER else f"{answer[: MAX_ANSWER - 1]}…"


# Most data sets do not record the kind of the gold answer, so it is derived from the answer's form.

MAX_CLASSIFIED = 200
"""Maximum characters of an answer that are read to derive its kind."""

_INTEGER = r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)"
_ANSWER_KINDS = (
    ("data", re.compile(r'\{\s*".*')),
    ("integer", re.compile(rf"{_INTEGER}(?:\.0*)?")),
    ("decimal", re.compile(r"[-+]?[\d,]*\.\d+")),
    ("percent", re.compile(r"[-+]?[\d,.]+\s*\\?%")),
    (
        "fraction",
        re.compile(
            rf"[-+]?\\[dt]?frac\s*+(?:{{{_INTEGER}}}|\d)\s*+(?:{{\d+}}|\d+)|{_INTEGER}\s*/\s*\d+"
        ),
    ),
    ("choice", re.compile(r"(?:\\text{)?\(?[A-H]\)?}?")),
    ("interval or point", re.compile(r"(?:\\left)?[\[(].*,[^,]*[\])]")),
    ("list", re.compile(r"[^,]*+,.*+")),
    ("expression", re.compile(r"[^\\^_=+*/]*+[\\^_=+*/].*+|[-+]?\d*+[a-z]|[-+]?\d++\s*+\w++")),
)


def find_answer_kind(answer_text: str) -> str:
    """Return the kind of an answer, such as `integer`, `choice` or `text`.

    Only its text is examined, not the problem.
    """
    text = " ".join(answer_text[:MAX_CLASSIFIED].strip().strip("$").split())
    return next((name for name, pattern in _ANSWER_KINDS if pattern.fullmatch(text)), "text")
