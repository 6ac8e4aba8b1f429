"""Messages for invalid values of settings, with the value and the rule in plain words.

pydantic finds the faults and gives each a type. Its own messages are written for Python
programmers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

_WHOLE_NUMBER, _NUMBER, _TEXT, _LIST = (
    "be a whole number",
    "be a number",
    "be a string",
    "be a list",
)
_MAPPING, _BOOLEAN, _CHOICE = "be keys with values", "be true or false", "be {expected}"
RULE_BY_ERROR_TYPE: Mapping[str, str] = {
    "bool_type": _BOOLEAN,
    "bool_parsing": _BOOLEAN,
    "int_type": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": "be a whole number of fewer digits",
    "int_from_float": "be a whole number, without a fraction",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "be a finite number",
    "greater_than": "be more than {gt}",
    "greater_than_equal": "be at least {ge}",
    "less_than": "be less than {lt}",
    "less_than_equal": "be at most {le}",
    "multiple_of": "be a multiple of {multiple_of}",
    "string_type": _TEXT,
    "string_sub_type": _TEXT,
    "string_unicode": "be a string of valid Unicode",
    "string_too_short": "have at least {min_length} characters",
    "string_too_long": "have at most {max_length} characters",
    "string_pattern_mismatch": "match the pattern {pattern}",
    "literal_error": _CHOICE,
    "enum": _CHOICE,
    "list_type": _LIST,
    "tuple_type": _LIST,
    "set_type": _LIST,
    "too_short": "hold at least {min_length}",
    "too_long": "hold at most {max_length}",
    "dict_type": _MAPPING,
    "mapping_type": _MAPPING,
    "model_type": _MAPPING,
    "model_attributes_type": _MAPPING,
    "dataclass_type": _MAPPING,
    "invalid_key": "have a string in place of this key",
    "none_required": "be null",
}
"""Rule for the value, as the words that follow "must", by pydantic's type of error. Names in braces
are replaced by values from the error's context."""
UNKNOWN_KEY = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
"""Pydantic's types of error for a key that a class does not have."""
REQUIRED = frozenset({"missing", "missing_argument"})
"""Pydantic's types of error for a missing value."""


def describe_fault(error: Mapping[str, Any]) -> str:
    """Describe one error, as in `must be a whole number, is a string`.

    Args:
        error: an element of pydantic's `ValidationError.errors()`.
    """
    error_type = error["type"]
    if error_type == "value_error":  # from a validator of mclabel, whose message is complete
        return str(error["ctx"]["error"])
    if error_type in UNKNOWN_KEY:
        return "unknown key"
    if error_type in REQUIRED:
        return "required"
    if error_type not in RULE_BY_ERROR_TYPE:
        return str(error["msg"])
    return describe_broken_rule([error])


def describe_broken_rule(errors: Sequence[Mapping[str, Any]]) -> str:
    """Describe the rule that a value breaks which fits none of several allowed types.

    Args:
        errors: errors of the value, one per allowed type. There is at least one, and all types of
            errors are in `RULE_BY_ERROR_TYPE`.
    """
    rules = dict.fromkeys(
        RULE_BY_ERROR_TYPE[error["type"]].format(**error.get("ctx", {})) for error in errors
    )
    first_error = errors[0]
    if first_error["type"] in ("too_short", "too_long"):
        value_note = f", holds {first_error['ctx']['actual_length']}"
    elif first_error["type"].endswith(("_type", "_parsing")):
        value_note = f", is {describe_value(first_error['input'])}"
    else:
        value_note = ""
    return f"must {' or '.join(rules)}{value_note}"


def describe_value(value: Any) -> str:
    """Describe a value of a configuration in the words of YAML."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case int() | float():
            return "a number"
        case str():
            return "a string" if value else "empty"
        case Mapping():
            return "keys with values"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def group_faults_by_field(
    settings_class: type[BaseModel], error: ValidationError
) -> Iterator[tuple[tuple[str, ...], list[dict[str, Any]]]]:
    """Yield the errors of each field. A field with several allowed types may have one error per
    type.

    Args:
        settings_class: class that was validated.
        error: error from validating the class.

    Returns:
        For each field the keys that lead to it, and its errors.
    """
    for path, field_errors in groupby(
        error.errors(), key=lambda fault: _find_key_path(settings_class, fault["loc"])
    ):
        yield path, [dict(fault) for fault in field_errors]


def _find_key_path(
    settings_class: type[BaseModel], location: Sequence[str | int]
) -> tuple[str, ...]:
    """Return the keys that lead to a value, without the parts that pydantic inserts into an error's
    location.

    Pydantic inserts `[key]` if a key itself is wrong, and after the name of a field with several
    allowed types it inserts the type that it tried.
    """
    path: list[str] = []
    current: Any = settings_class
    for part in location:
        if get_origin(current) in (Union, UnionType):
            list_types = [choice for choice in get_args(current) if get_origin(choice) is list]
            current = (
                list_types[0] if str(part).startswith("list[") and len(list_types) == 1 else None
            )
            continue
        if part != "[key]":
            path.append(str(part))
        current = _find_inner_type(current, part)
    return tuple(path)


def _find_inner_type(outer_type: Any, part: str | int) -> Any:
    """Return the type at a key of a model, or of an element of a list; None if unknown."""
    if isinstance(outer_type, type) and issubclass(outer_type, BaseModel):
        info = outer_type.model_fields.get(str(part))
        return None if info is None else _strip_annotations(info.annotation)
    if get_origin(outer_type) in (list, dict):
        return _strip_annotations(get_args(outer_type)[-1])
    return None


def _strip_annotations(annotation: Any) -> Any:
    """Return a type without `Annotated` bounds and without None, for which pydantic inserts
    nothing.
    """
    if get_origin(annotation) is Annotated:
        return _strip_annotations(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        inner_types = [
            _strip_annotations(choice) for choice in get_args(annotation) if choice is not NoneType
        ]
        return inner_types[0] if len(inner_types) == 1 else Union[tuple(inner_types)]  # noqa: UP007
    return annotation
