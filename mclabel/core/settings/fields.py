"""Fields of settings: bounds of numbers, marks that say what depends on them, and rules.

Bounds are far above any need; they keep a hostile file from making code count without end. Rules
between fields (`rule`) are checked with the fields, so that a user sees all faults at once.
`read_record` checks records of files, which other programs may have written.
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

from mclabel.core.faults import fault_text

MAX_COUNT = 1_000_000
"""Largest number of samples, engines, steps of a solution and the like."""
MAX_TOKENS = 1_000_000_000
"""Tokens of one solution, one search or one batch; steps of a training."""
MAX_TOTAL = 10**15
"""Tokens of a whole job, and rows of a data set."""
MAX_SECONDS = 1e9
MAX_AMOUNT = 1e9
"""Largest weight, rate or price."""
MAX_CORES = 1_024
"""CPU threads, or GPUs that work as one."""
MAX_SEED = 2**63 - 1

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
"""Type of a field that holds a random seed."""


@dataclass(frozen=True, slots=True)
class AtMost(AfterValidator):
    """Checks a bound on a number; made by `at_most`."""

    limit: int


def at_most(limit: int, why: str) -> AtMost:
    """Return a bound on a number, with its reason in the message.

    Args:
        limit: the largest number that is taken.
        why: a clause, such as "all of them are held in memory".
    """

    def check(value: int | None) -> int | None:
        if value is not None and value > limit:
            raise ValueError(f"must be at most {limit:,}, not {value:,}: {why}")
        return value

    return AtMost(check, limit)


def refuse_truth_as_number(schema: Any) -> None:
    """Make a schema of pydantic refuse true and false as numbers, numbers as true, and infinities.

    Numbers may still be given as texts, since YAML reads `1e-4` as one.

    Args:
        schema: changed in place.
    """
    if isinstance(schema, list | tuple):
        for part in schema:
            refuse_truth_as_number(part)
    elif isinstance(schema, dict):
        kind = str(schema.get("type"))  # or the schema of a field of that name
        if kind == "function-before" and schema["function"]["function"] in _REFUSING.values():
            return
        if kind in _REFUSING:
            inner: Any = {**schema, **({"allow_inf_nan": False} if kind == "float" else {})}
            schema.clear()
            schema.update(core_schema.no_info_before_validator_function(_REFUSING[kind], inner))
        else:
            for part in schema.values():
                refuse_truth_as_number(part)


def _refusing(fault: ErrorType, *kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) in kinds:
            raise PydanticKnownError(fault)
        return value

    return check


_REFUSING = {
    "int": _refusing("int_type", bool),
    "float": _refusing("float_type", bool),
    "bool": _refusing("bool_type", int, float),
}
"""Strict validators by type of schema, which refuse values that pydantic would convert."""


OPERATIONAL = "operational"
"""Marks a field that does not change what a label means."""
SENSITIVE = "sensitive"
"""Marks a field into which a secret could be put by mistake: messages do not repeat its value."""
CONTENT = "content"
"""Marks a field that names a file of which the content counts, and not the place."""

ONE_VALUE = "one value"
"""Marks a mapping with keys of the user's own: it is recorded and compared as one value, as a key
that one of two records lacks would be taken for a setting of another version."""


@dataclass(frozen=True)
class Harmless:
    """Marks a field by whose values somebody's code could run, or a secret leave the machine.

    A document may hold harmless values of it; any other must be given on the command line as well.
    Of a mapping each value counts alone.
    """

    is_harmless: Callable[[Any], bool]
    risk: str
    """Risk of another value: a clause of which the key is the subject."""


RUNS_CODE = Harmless(operator.not_, "runs Python code that comes with a model")
"""Marks a field that trusts the code of models."""
TrustsCode = Annotated[bool, RUNS_CODE]
"""Type of a field that trusts the code of one model."""


T = TypeVar("T")

Count = Annotated[int, Field(ge=0, le=MAX_TOTAL)]
"""Type of a field that counts something, or is an index."""
Amount = Annotated[float, Field(ge=0)]
"""Type of a field that holds a finite number which is not negative, such as hours."""
MAX_GIVEN = 60
"""Characters of a wrong value that a message repeats."""


def read_record(kind: type[T], content: Any) -> T:
    """Check and return a record from JSON values, or from the row of a table.

    Args:
        kind: a dataclass, or another type that pydantic knows.
        content: mappings, lists, texts, numbers, true, false and None.

    Raises:
        ValueError: names the first field that is wrong, its value and the rule.
    """
    try:
        records: tuple[T] = _adapter(cast("Any", kind)).validate_json(json.dumps([content]))
    except ValidationError as error:
        raise ValueError(_fault(error)) from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return records[0]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    # A dataclass takes these rules from what holds it alone: hence the tuple.
    rules = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    return TypeAdapter(tuple[kind], config=rules)


def _fault(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] == "json_invalid":  # of what `json.dumps` writes, lone surrogates alone are
        return "a text is not valid Unicode: it holds lone surrogates"
    place, given = ".".join(map(str, first["loc"][1:])), first["input"]
    is_whole = isinstance(given, Mapping | list) or first["type"].startswith("missing")
    shown = "" if is_whole else f"={repr(given)[:MAX_GIVEN]}"
    return f"{place}{shown}: {fault_text(first)}" if place else fault_text(first)


M = TypeVar("M", bound=BaseModel)
Check = TypeVar("Check", bound=Callable[[Any], str | None])
_MARK = "_is_rule"


def rule(check: Check) -> Check:
    """Mark a method of settings that returns the fault between its fields, None if there is none.

    The text that it returns gives a field, its value, the rule and the remedy, as in
    `shard=true: splits the training over workers, but workers=1. Ask for more workers`.
    """
    setattr(check, _MARK, True)
    return check


def check_rules(kind: type[M], content: Any, handler: Callable[[Any], M]) -> M:
    """Validate the bounds of all fields and all rules: a validator in mode `wrap`.

    Args:
        kind: class of the settings.
        content: the content to validate.
        handler: validates the fields.

    Raises:
        ValidationError: holds the faults of the fields and those of the rules.
    """
    try:
        settings = handler(content)
    except ValidationError as error:
        partial = _without_faults(kind, content, error)
        broken = [] if partial is None else list(_broken(partial, partially=True))
        if not broken:
            raise
        faults = [_again(fault) for fault in error.errors(include_url=False)]
        raise _validation_error(kind, content, faults, broken) from None
    if broken := list(_broken(settings)):
        raise _validation_error(kind, content, [], broken)
    return settings


def _rules(kind: type[BaseModel]) -> Mapping[str, Callable[[Any], str | None]]:
    """Return the rules of a class, those of its base classes first."""
    return {
        name: method
        for base in reversed(kind.__mro__)
        for name, method in vars(base).items()
        if getattr(method, _MARK, False)
    }


def _broken(settings: BaseModel, *, partially: bool = False) -> Iterator[str]:
    """Yield the texts of the rules that settings break.

    Args:
        settings: the settings to check.
        partially: some fields are missing, as they are wrong; rules that read them are left out.
    """
    for check in _rules(type(settings)).values():
        try:
            fault = check(settings)
        except AttributeError:
            if not partially:
                raise
            continue
        if fault is not None:
            yield fault


def _without_faults(kind: type[M], content: Any, error: ValidationError) -> M | None:
    """Return settings without the wrong fields; None if no field was read at all."""
    if not isinstance(content, Mapping):
        return None
    wrong = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]}
    right = {
        name: _field_adapter(info).validate_python(content[name])
        for name, info in kind.model_fields.items()
        if name in content and name not in wrong
    }
    partial = kind.model_construct(**right)
    for name in wrong:
        partial.__dict__.pop(name, None)
    return partial


def _field_adapter(info: FieldInfo) -> TypeAdapter[Any]:
    """Validates the values of one field."""
    bounded: Any = info.annotation
    for bound in info.metadata:
        bounded = Annotated[bounded, bound]
    return TypeAdapter(bounded)


def _again(fault: Any) -> InitErrorDetails:
    """Copy a field's fault, to be raised once more together with others."""
    is_known, context = fault["type"] in get_args(ErrorType), fault.get("ctx", {})
    return InitErrorDetails(
        type=fault["type"]
        if is_known
        else PydanticCustomError(fault["type"], fault["msg"], context),
        loc=fault["loc"],
        input=fault["input"],
        ctx=context,
    )


def _validation_error(
    kind: type[BaseModel], content: Any, faults: list[InitErrorDetails], broken: list[str]
) -> ValidationError:
    for text in broken:
        context = {"error": ValueError(text)}
        faults.append(InitErrorDetails(type="value_error", loc=(), input=content, ctx=context))
    return ValidationError.from_exception_data(kind.__name__, faults)
