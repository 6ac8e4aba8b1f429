"""Compares answers that are literals of Python or JSON: quoted texts, dictionaries, None."""

from __future__ import annotations

import ast
import re
from typing import Any

from mclabel.core.python_source import parse_python

_CALL = re.compile(r"(set|frozenset|tuple|list)\(([\[({].*[\])}])\)", re.DOTALL)
_JSON = re.compile(r"(?<![\w'\"])(true|false|null)(?![\w'\"])")
_NAMES = {"true": "True", "false": "False", "null": "None"}
_TYPES: dict[str, Any] = {"set": set, "frozenset": set, "tuple": tuple, "list": list}
_CALLS = tuple(f"{name}(" for name in _TYPES)
_OPENINGS = ("{", "[", "(", "'", '"', *_CALLS)
_MAX_NESTING = 20
_NOTHING = object()


def same_python_literals(answer: str, gold: str) -> bool | None:
    """Return whether two texts are equal literals of Python or JSON.

    The order of keys, the kind of quotes and the difference between lists and tuples do not count.
    The result is None if a text is not such a literal, or if the literals are neither equal nor
    both dictionaries. It is also None for literals without quotes, such as `(1, 2)`.
    """
    gold = gold.strip()
    if not gold.startswith(_OPENINGS):
        return None
    has_texts = "'" in gold or '"' in gold
    if not (has_texts or gold.startswith(_CALLS) or gold.endswith(",)") or answer.endswith(",)")):
        return None
    theirs, ours = _parse_literal(gold), _parse_literal(answer.strip())
    if theirs is _NOTHING or ours is _NOTHING:
        return None
    if _make_comparable_literal(theirs) == _make_comparable_literal(ours) and (
        has_texts or type(theirs) is type(ours)
    ):
        return True
    return False if isinstance(theirs, dict) and isinstance(ours, dict) else None


def _parse_literal(text: str) -> Any:
    call = _CALL.fullmatch(text)
    text = call[2] if call else text
    if "\\" in text.replace("\\'", "").replace('\\"', "") or text[:1] not in tuple("{[('\""):
        return _NOTHING
    if sum(map(text.count, "([{")) > _MAX_NESTING * 5:
        return _NOTHING
    try:
        tree = parse_python(_JSON.sub(lambda m: _NAMES[m[1]], text))
        (statement,) = tree.body
        value = ast.literal_eval(statement.value) if isinstance(statement, ast.Expr) else _NOTHING
        return _TYPES[call[1]](value) if call else value
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return _NOTHING


def _make_comparable_literal(value: Any, depth: int = 0) -> Any:
    """Return a comparable copy of a value, in which True differs from 1 and lists are tuples."""
    if depth > _MAX_NESTING:
        return _NOTHING
    if isinstance(value, dict):
        return (
            "dict",
            frozenset(
                (_make_comparable_literal(k), _make_comparable_literal(v, depth + 1))
                for k, v in value.items()
            ),
        )
    if isinstance(value, set):
        return ("set", frozenset(_make_comparable_literal(item, depth + 1) for item in value))
    if isinstance(value, list | tuple):
        return tuple(_make_comparable_literal(item, depth + 1) for item in value)
    return (type(value).__name__, value) if isinstance(value, bool | str | bytes) else value
