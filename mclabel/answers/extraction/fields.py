"""Extracts the answer of a text that is a JSON object or ends with one."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from mclabel.core.python_source import parse_python

_MAX_OBJECT = 20_000
_NAMES = (
    "final_answer", "final answer", "finalanswer", "correct_answer", "answer", "ans", "choice",
    "correct_option", "selected_option", "option", "solution", "result",
)  # fmt: skip
"""Keys that hold the answer, in lower case and in the order in which they are tried."""
_HOLDERS = ("output", "response", "data")
"""Keys of a nested object that has the answer under one of `_NAMES`."""
_VALUES, _UNITS = ("value", "text", "content"), ("unit", "units")
_COMMAND = re.compile(r"(?<!\\)\\(?=[a-mo-zA-Z][A-Za-z])")
"""The backslash of a LaTeX command that is not escaped in JSON."""
_BEFORE = re.compile(
    r"(?:json|answer|output|response|result)[^{}\n]{0,20}:?[ \n`*]{0,8}\Z", re.IGNORECASE
)
"""Words that announce an object in the middle of a line."""
_MAX_OPENINGS, _MAX_BEFORE = 12, 40


def find_start_and_answer_of_closing_object(text: str) -> tuple[int, str | None] | None:
    """Return the start index of the object at the end of a text, and the answer in it.

    The answer is None if the object has none. The result is None if the text does not end with an
    object.
    """
    bare = text.rstrip("` \n\t")
    low = max(0, len(bare) - _MAX_OBJECT)
    if not bare.endswith("}") or (bare.find('"', low) < 0 and bare.find("'", low) < 0):
        return None
    line = bare.rfind("\n{", low)
    start = line + 1 if line >= 0 else len(bare) - len(bare.lstrip("` \n\tjsonJSON"))
    if bare[start : start + 1] != "{" and (start := _find_announced_object_start(bare, low)) < 0:
        return None
    if len(bare) - start > _MAX_OBJECT:
        return None
    fields = _parse_object_fields(bare[start:])
    return None if fields is None else (start, _get_answer_field(fields))


def _find_announced_object_start(text: str, search_start: int) -> int:
    """Return the start index of an object that words on its line announce, as in `in JSON:
    {"answer": 42}`; -1 if there is none.

    Args:
        text: text that ends with the object.
        search_start: index from which the text is searched.
    """
    place = len(text)
    for _ in range(_MAX_OPENINGS):
        place = text.rfind("{", search_start, place)
        if place < 0:
            break
        is_object = text[place + 1 : place + 8].lstrip()[:1] in ('"', "'")
        if is_object and _BEFORE.search(text, max(search_start, place - _MAX_BEFORE), place):
            return place
    return -1


def _parse_object_fields(text: str) -> dict[str, Any] | None:
    """Parse an object in JSON or Python notation and return its fields by their lower-case names;
    None if it cannot be parsed.
    """
    try:
        fields: Any = json.loads(_COMMAND.sub(r"\\\\", text), strict=False)
    except (ValueError, RecursionError):
        if '"' in text[:3] or "'" not in text:
            return None
        try:
            fields = ast.literal_eval(parse_python(text).body[0].value)  # type: ignore[attr-defined]
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError, AttributeError):
            return None
    return _lowercase_keys(fields) if isinstance(fields, dict) else None


def _lowercase_keys(fields: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name).lower(): value for name, value in fields.items()}


def _get_answer_field(fields: dict[str, Any]) -> str | None:
    name = next((name for name in _NAMES if name in fields), None)
    if name is None:
        holder = next((fields[key] for key in _HOLDERS if isinstance(fields.get(key), dict)), None)
        return (
            None
            if holder is None or fields is holder
            else _get_answer_field(_lowercase_keys(holder))
        )
    value = fields[name]
    if isinstance(value, dict):
        return _convert_fields_to_answer(_lowercase_keys(value))
    if isinstance(value, list):
        value = ", ".join(str(entry) for entry in value)
    return None if value is None else str(value).strip() or None


def _convert_fields_to_answer(value: dict[str, Any]) -> str | None:
    """Convert an object to the text of an answer; None if that is not possible.

    The object must be an amount with its unit, or have a value for each name.
    """
    held = next((value[name] for name in _VALUES if name in value), None)
    if held is not None:
        unit = next((value[name] for name in _UNITS if name in value), "")
        return f"{held} {unit}".strip()
    if not value or not all(isinstance(entry, str | int | float) for entry in value.values()):
        return None
    return ", ".join(f"{name} = {entry}" for name, entry in value.items())
