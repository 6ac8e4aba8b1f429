"""Figures as JSON: the same bytes for the same figures."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, is_dataclass
from typing import Any

DIGITS = 10
"""Significant ones kept: the order in which a library adds up floats may change the last ones."""


def json_text(content: Any) -> str:
    """Dataclasses, mappings and sequences of figures as indented JSON with a line end."""
    plain = asdict(content) if is_dataclass(content) and not isinstance(content, type) else content
    return json.dumps(_rounded(plain), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _rounded(content: Any) -> Any:
    if isinstance(content, float):
        return content if not math.isfinite(content) else float(f"{content:.{DIGITS}g}")
    if isinstance(content, dict):
        return {key: _rounded(item) for key, item in content.items()}
    if isinstance(content, list | tuple):
        return [_rounded(item) for item in content]
    return content
