"""Defines bounds of numbers, markers for the role of a field, and rules between fields of settings.

The bounds are far above any need; they keep a malicious file from causing endless work. Rules
between fields (`rule`) are checked together with the fields, so that a user sees all faults at
once. `read_record` checks records from files, which other programs may have written.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError, core_schema
from pydantic_core.core_schema import ErrorType

from mclabel.core.faults import describe_fault

MAX_COUNT = 1_000_000
"""Largest number of samples, engines, steps of a solution and the like."""
MAX_TOKENS = 1_000_000_000
"""Largest number of tokens of a solution, a search or a batch, and of training steps."""
MAX_TOTAL = 10**15
"""Largest number of tokens of a job, and of rows of a data set."""
MAX_SECONDS = 1e9
"""Largest duration, in seconds."""
MAX_AMOUNT = 1e9
"""Largest weight, rate or price."""
MAX_CORES = 1_024
"""Largest number of CPU threads or processes, and of GPUs of one engine."""
MAX_SEED = 2**63 - 1
"""Largest random seed."""

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""Type of a field that holds a random seed."""


@dataclass(frozen=True, slots=True)
class AtMost(AfterValidator):
    """Annotation that checks the upper bound of a number; `at_most` creates it."""

    limit: int
    """Largest allowed number."""


def at_most(limit: int, why: str) -> AtMost:
    """Return an upper bound of a number whose error message gives a reason.

    Args:
        limit: largest allowed number.
        why: clause with the reason, such as "all of them are held in memory".
    """

    def check_limit(value: int | None) -> int | None:
        if value is not None and value > limit:
            raise ValueError(f"must be at most {limit:,}, not {value:,}: {why}")
        return value

    return AtMost(check_limit, limit)


def refuse_lossy_conversions(schema: Any) -> None:
    """Change a schema of pydantic so that it refuses some conversions.

    The schema then rejects true and false as numbers, numbers as true or false, and infinite
    numbers. It still accepts numbers as strings, because YAML 1.1 reads `1e-4` as a string.

    Args:
        schema: schema to change in place.
    """
    if isinstance(schema, list | tuple):
        for part in schema:
            refuse_lossy_conversions(part)
    elif isinstance(schema, dict):
        schema_type = str(schema.get("type"))  # may also be the schema of a field named "type"
        if (
            schema_type == "function-before"
            and schema["function"]["function"] in _TYPE_CHECKS.values()
        ):
            return
        if schema_type in _TYPE_CHECKS:
            checked_schema: Any = {
                **schema,
                **({"allow_inf_nan": False} if schema_type == "float" else {}),
            }
            schema.clear()
            schema.update(
                core_schema.no_info_before_validator_function(
                    _TYPE_CHECKS[schema_type], checked_schema
                )
            )
        else:
            for part in schema.values():
                refuse_lossy_conversions(part)


def _refuse_types(fault: ErrorType, *refused_types: type) -> Callable[[Any], Any]:
    """Return a validator that raises an error of type `fault` for values of some types."""

    def check_type(value: Any) -> Any:
        if type(value) in refused_types:
            raise PydanticKnownError(fault)
        return value

    return check_type


_TYPE_CHECKS = {
    "int": _refuse_types("int_type", bool),
    "float": _refuse_types("float_type", bool),
    "bool": _refuse_types("bool_type", int, float),
}
"""Validators that reject values which pydantic would convert, by type of schema."""


OPERATIONAL = "operational"
"""Marker of a field that does not change what a label means."""
SENSITIVE = "sensitive"
"""Marker of a field that could contain a secret by mistake. Messages do not repeat its value."""
CONTENT = "content"
"""Marker of a field that names a file. A run's identity (the settings that must not change when it
is resumed) includes the file's content, not its path."""

ONE_VALUE = "one value"
"""Marker of a mapping whose keys the user chooses. It is recorded and compared as a single value,
because otherwise a key that only one of two records has would be taken for a setting of another
version of mclabel."""


@dataclass(frozen=True)
class Harmless:
    """Annotation of a field some of whose values are harmful.

    A harmful value could run third-party code or send a secret elsewhere. A configuration file
    alone may set only harmless values. A harmful value must also be given on the command line. The
    values of a mapping are checked one by one.
    """

    is_harmless: Callable[[Any], bool]
    """Function that returns whether a value is harmless."""
    risk: str
    """Risk of a value that is not harmless: the end of a sentence that begins with the key, such as
    "runs Python code that comes with a model"."""


RUNS_CODE = Harmless(operator.not_, "runs Python code that comes with a model")
"""Marker of a bool field; True allows the code that comes with models to run."""
TrustsCode = Annotated[bool, RUNS_CODE]
"""Type of a bool field; True allows the code that comes with one model to run."""


T = TypeVar("T")

Count = Annotated[int, Field(ge=0, le=MAX_TOTAL)]
"""Type of a field that holds a count or an index."""
Amount = Annotated[float, Field(ge=0)]
"""Type of a field that holds a finite number of at least 0, such as hours."""
MAX_SHOWN_VALUE = 60
"""Maximum number of characters of an invalid value in a message."""


def read_record(record_type: type[T], content: Any) -> T:
    """Check and return a record from JSON values, or from the row of a table.

    Args:
        record_type: type of the record: a dataclass, or another type that pydantic supports.
        content: mappings, lists, texts, numbers, true, false and None.

    Raises:
        ValueError: a field is invalid. The message gives the first such field, its value and the
            rule.
    """
    try:
        records: tuple[T] = _make_strict_adapter(cast("Any", record_type)).validate_json(
            json.dumps([content])
        )
    except ValidationError as error:
        raise ValueError(_describe_fault(error)) from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    return records[0]


@cache
def _make_strict_adapter(record_type: Any) -> TypeAdapter[Any]:
    # The tuple is needed because a dataclass takes this configuration only from a type around it.
    rules = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return TypeAdapter(tuple[record_type], config=rules)


def _describe_fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":  # in the output of `json.dumps` only by lone surrogates
        return "a string is not valid Unicode, because it holds lone surrogates"
    field_path, value = ".".join(map(str, first["loc"][1:])), first["input"]
    is_record = isinstance(value, Mapping | list) or first["type"].startswith("missing")
    value_text = "" if is_record else f"={repr(value)[:MAX_SHOWN_VALUE]}"
    return (
        f"{field_path}{value_text}: {describe_fault(first)}"
        if field_path
        else describe_fault(first)
    )


M = TypeVar("M", bound=BaseModel)
Check = TypeVar("Check", bound=Callable[[Any], str | None])
_RULE_MARKER = "_is_rule"


def rule(check: Check) -> Check:
    """Mark a method of settings that checks a rule between fields.

    The method returns the fault as a text, or None if there is none. The text gives a field, its
    value, the rule and the remedy, as in
    `shard=true: splits the training over workers, but workers=1. Ask for more workers`.
    """
    setattr(check, _RULE_MARKER, True)
    return check


def check_rules(settings_class: type[M], content: Any, handler: Callable[[Any], M]) -> M:
    """Validate all fields and all rules. This function is a pydantic validator in mode `wrap`.

    Args:
        settings_class: class of the settings.
        content: content to validate.
        handler: pydantic's function that validates the fields.

    Raises:
        ValidationError: the content breaks the bounds of fields or the rules. The error contains
            all faults.
    """
    try:
        settings = handler(content)
    except ValidationError as error:
        partial = _drop_invalid_fields(settings_class, content, error)
        broken_rules = [] if partial is None else list(_find_broken_rules(partial, partially=True))
        if not broken_rules:
            raise
        faults = [_to_init_error(fault) for fault in error.errors(include_url=False)]
        raise _make_validation_error(settings_class, content, faults, broken_rules) from None
    if broken_rules := list(_find_broken_rules(settings)):
        raise _make_validation_error(settings_class, content, [], broken_rules)
    return settings


def _find_broken_rules(settings: BaseModel, *, partially: bool = False) -> Iterator[str]:
    """Yield the fault of each rule that settings break.

    Args:
        settings: settings to check.
        partially: True if invalid fields are missing from `settings`. Rules that read a missing
            field are skipped.
    """
    rules = {
        name: method
        for base in reversed(type(settings).__mro__)
        for name, method in vars(base).items()
        if getattr(method, _RULE_MARKER, False)
    }
    for check in rules.values():
        try:
            fault = check(settings)
        except AttributeError:
            if not partially:
                raise
            continue
        if fault is not None:
            yield fault


def _drop_invalid_fields(settings_class: type[M], content: Any, error: ValidationError) -> M | None:
    """Return settings made without the invalid fields; None if the content is not a mapping."""
    if not isinstance(content, Mapping):
        return None
    invalid_names = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]}
    valid_values = {
        name: _make_field_adapter(info).validate_python(content[name])
        for name, info in settings_class.model_fields.items()
        if name in content and name not in invalid_names
    }
    partial = settings_class.model_construct(**valid_values)
    for name in invalid_names:
        partial.__dict__.pop(name, None)
    return partial


def _make_field_adapter(info: FieldInfo) -> TypeAdapter[Any]:
    """Return the validator of the values of one field."""
    bounded: Any = info.annotation
    for bound in info.metadata:
        bounded = Annotated[bounded, bound]
    return TypeAdapter(bounded)


def _to_init_error(fault: Any) -> InitErrorDetails:
    """Copy a field's fault, so that it can be raised again together with others."""
    is_known, context = fault["type"] in get_args(ErrorType), fault.get("ctx", {})
    return InitErrorDetails(
        type=fault["type"]
        if is_known
        else PydanticCustomError(fault["type"], fault["msg"], context),
        loc=fault["loc"],
        input=fault["input"],
        ctx=context,
    )


def _make_validation_error(
    settings_class: type[BaseModel],
    content: Any,
    faults: list[InitErrorDetails],
    broken_rules: list[str],
) -> ValidationError:
    for text in broken_rules:
        context = {"error": ValueError(text)}
        faults.append(InitErrorDetails(type="value_error", loc=(), input=content, ctx=context))
    return ValidationError.from_exception_data(settings_class.__name__, faults)
