"""Figures as JSON, the same bytes for the same figures; where the pages' files lie."""

from __future__ import annotations

import json
import math
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
    if isinstance(content, list | tuple):
        return [_plain(item) for item in content]
    return content
