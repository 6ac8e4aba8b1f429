"""Rules between the fields of settings, all of which are checked before any fault is reported.

Validators of pydantic run one after the other, and not at all where a field is wrong: a user would
mend one fault after the other. A method that is marked by `rule` is checked together with all the
others and with the fields themselves; it is left out only if it reads a field that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import InitErrorDetails, PydanticCustomError
from pydantic_core.core_schema import ErrorType

M = TypeVar("M", bound=BaseModel)
Check = TypeVar("Check", bound=Callable[[Any], str | None])
_MARK = "_is_rule"


def rule(check: Check) -> Check:
    """Marks a method of settings that returns what is wrong between its fields, None if nothing is.

    The text that it returns gives a field, its value, the rule and the remedy, as in
    `shard=true: splits the training over workers, but workers=1. Ask for more workers`.
    """
    setattr(check, _MARK, True)
    return check


def check_rules(kind: type[M], content: Any, handler: Callable[[Any], M]) -> M:
    """Settings that keep the bounds of all fields and all rules: a validator in mode `wrap`.

    Args:
        kind: class of the settings.
        content: what is to be validated.
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
    """The rules of a class and of those that it derives from, these first."""
    return {
        name: method
        for base in reversed(kind.__mro__)
        for name, method in vars(base).items()
        if getattr(method, _MARK, False)
    }


def _broken(settings: BaseModel, *, partially: bool = False) -> Iterator[str]:
    """Texts of the rules that settings break.

    Args:
        settings: to be checked.
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
    """Settings that lack the fields that are wrong; None if no field was read at all."""
    if not isinstance(content, Mapping):
        return None
    wrong = {str(fault["loc"][0]) for fault in error.errors() if fault["loc"]}
    right = {
        name: _adapter(info).validate_python(content[name])
        for name, info in kind.model_fields.items()
        if name in content and name not in wrong
    }
    partial = kind.model_construct(**right)
    for name in wrong:
        partial.__dict__.pop(name, None)
    return partial


def _adapter(info: FieldInfo) -> TypeAdapter[Any]:
    """Validates the values of one field."""
    bounded: Any = info.annotation
    for bound in info.metadata:
        bounded = Annotated[bounded, bound]
    return TypeAdapter(bounded)


def _again(fault: Any) -> InitErrorDetails:
    """A fault of a field, to be raised once more together with others."""
    known, context = fault["type"] in get_args(ErrorType), fault.get("ctx", {})
    return InitErrorDetails(
        type=fault["type"] if known else PydanticCustomError(fault["type"], fault["msg"], context),
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
