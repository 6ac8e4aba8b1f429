"""The answer of a text that is, or ends in, an object of JSON."""

from __future__ import annotations

import json
import re
from typing import Any

_MAX_OBJECT = 20_000
_NAMES = ("final_answer", "final answer", "finalanswer", "answer", "solution", "result")
"""Keys of an answer, in lower case, from the one that counts most."""
_COMMAND = re.compile(r"(?<!\\)\\(?=[a-mo-zA-Z][A-Za-z])")
"""A command of LaTeX whose backslash was not escaped."""


def closing_object(text: str) -> tuple[int, str | None] | None:
    """Where the object that ends a text begins, and the answer that it holds; None without one."""
    bare = text.rstrip("` \n\t")
    if not bare.endswith("}") or '"' not in bare[-_MAX_OBJECT:]:
        return None
    low = max(0, len(bare) - _MAX_OBJECT)
    line = bare.rfind("\n{", low)
    start = line + 1 if line >= 0 else len(bare) - len(bare.lstrip("` \n\tjsonJSON"))
    if bare[start : start + 1] != "{" or len(bare) - start > _MAX_OBJECT:
        return None
    try:
        fields: Any = json.loads(_COMMAND.sub(r"\\\\", bare[start:]), strict=False)
    except (ValueError, RecursionError):
        return None
    return start, _answer_of({str(name).lower(): value for name, value in fields.items()})


def _answer_of(fields: dict[str, Any]) -> str | None:
    name = next((name for name in _NAMES if name in fields), None)
    value = fields[name] if name is not None else None
    if isinstance(value, list):
        value = ", ".join(str(entry) for entry in value)
    if value is None or isinstance(value, dict | bool):
        return None
    return str(value).strip() or None
