"""Base classes of settings, which each component declares once, in the module that uses them.

A configuration nests settings: `estimator: {kind: posterior, rollouts: 64}`. A field is *semantic*
if it changes what a label means, else *operational*. A run's identity holds the semantic fields
that differ from their defaults, so a later release may add fields and still resume the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from mclabel.core.components import (
    ComponentNotAllowed,
    find_component,
    find_component_name,
    list_component_names,
)
from mclabel.core.errors import ConfigError
from mclabel.core.faults import (
    RULE_BY_ERROR_TYPE,
    describe_broken_rule,
    describe_fault,
    describe_value,
    group_faults_by_field,
)
from mclabel.core.settings.fields import (
    CONTENT,
    ONE_VALUE,
    OPERATIONAL,
    Harmless,
    check_rules,
    refuse_lossy_conversions,
)

NESTED_FAULTS, COMPONENT_FAULT = "nested_faults", "component_fault"
"""Types of the pydantic errors that this module raises: the first contains all errors of a
component's settings, the second is an error in a component's name."""


@dataclass(frozen=True)
class OneOf:
    """Annotation of a string field that must be one of the given names, usually keys of a dict."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that accepts only the given names."""
        return core_schema.literal_schema(list(self.names))


@dataclass(frozen=True)
class Named:
    """Annotation of a string field that names a component without settings, such as a loss."""

    component_kind: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that accepts names of components. It imports no built-in component."""
        return core_schema.no_info_after_validator_function(
            self._check_component_name, core_schema.str_schema()
        )

    def _check_component_name(self, name: str) -> str:
        if name not in list_component_names(self.component_kind):
            try:
                find_component(self.component_kind, name)
            except ConfigError as error:
                raise _to_pydantic_error(error) from error
        return name


class Settings(BaseModel):
    """Base class of all settings. Settings are frozen, and an unknown key is an error.

    The docstring under a field is its description in the reference of keys. A rule between fields
    is a method with the decorator `mclabel.core.settings.rule`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        """Return a schema in which no field accepts true or false as a number."""
        schema = handler(source)
        refuse_lossy_conversions(handler.resolve_ref_schema(schema))
        return schema

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        return check_rules(cls, content, handler)

    def identity(self) -> dict[str, Any]:
        """Return the semantic fields that differ from their defaults, as JSON values."""
        return {
            name: _to_recorded_content(info, content)
            for name, info in type(self).model_fields.items()
            if OPERATIONAL not in info.metadata
            and not _is_default(
                info, content := _to_plain_value(getattr(self, name), with_defaults=False)
            )
        }

    def semantic(self) -> dict[str, Any]:
        """Return all semantic fields, also those at their defaults, as JSON values."""
        return {
            name: _to_recorded_content(
                info, _to_plain_value(getattr(self, name), with_defaults=True)
            )
            for name, info in type(self).model_fields.items()
            if OPERATIONAL not in info.metadata
        }

    def with_changes(self, **changes: Any) -> Self:
        """Return a checked copy with other values of some fields.

        Raises:
            ValidationError: a value is of the wrong type or range.
        """
        return type(self).model_validate({**dict(self), **changes})


def list_content_fields(
    settings: Settings, parents: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the fields that name a file whose content, not path, is part of a run's identity.

    Args:
        settings: settings, which may nest other settings.
        parents: names of the fields that lead to `settings`.

    Returns:
        For each such field that is not None, the names that lead to it, and its value.
    """
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        nested = dict(_list_nested_settings(name, value))
        for path, inner in nested.items():
            yield from list_content_fields(inner, (*parents, *path))
        if not nested and CONTENT in info.metadata and value is not None:
            yield (*parents, name), value


def _list_nested_settings(name: str, value: Any) -> Iterator[tuple[tuple[str, ...], Settings]]:
    """Yield the settings in a field's value (itself settings, or a list or mapping of settings),
    each with the names that lead to it.
    """
    if isinstance(value, Settings):
        yield (name,), value
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            if isinstance(inner, Settings):
                yield (name, str(number)), inner
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, Settings):
                yield (name, key), inner


def list_risky_values(settings: Settings, parent: str = "") -> Iterator[tuple[str, Any, str]]:
    """Yield the values that a configuration file alone must not set, because they could run code or
    leak secrets.

    Args:
        settings: settings, which may nest other settings.
        parent: dotted path to `settings`, with a dot at its end.

    Returns:
        For each value a tuple: its dotted key, the value, and the risk, a clause whose subject is
        the key.
    """
    for name, info in type(settings).model_fields.items():
        value = getattr(settings, name)
        for path, inner in _list_nested_settings(name, value):
            yield from list_risky_values(inner, f"{parent}{'.'.join(path)}.")
        for mark in info.metadata:
            if isinstance(mark, Harmless):
                values = (
                    {f"{name}.{key}": inner for key, inner in value.items()}
                    if isinstance(value, Mapping)
                    else {name: value}
                )
                for key, inner in values.items():
                    if not mark.is_harmless(inner):
                        yield f"{parent}{key}", inner, mark.risk


class ComponentSettings(Settings):
    """Base class of the settings of components that a configuration chooses by `kind`.

    A component's class has its settings class as the attribute `Settings`.
    """

    component_kind: ClassVar[str]
    """Kind of the component, a key of `mclabel.core.components.BUILT_IN`."""

    kind: str = ""
    """Name of a built-in component or of another package's component, or `module:Class`."""

    def identity(self) -> dict[str, Any]:
        """Return the fields of `Settings.identity` and always `kind`."""
        return {"kind": self.kind, **super().identity()}

    @property
    def component(self) -> Any:
        """Class of the component."""
        return find_component(self.component_kind, self.kind)

    def model_post_init(self, context: Any, /) -> None:
        """Set `kind` if it is empty, as it is in settings that were made in Python.

        It is set to the name of the component whose class contains this settings class.
        """
        if not self.kind:
            owner = _OwnerClass(type(self))
            object.__setattr__(self, "kind", find_component_name(self.component_kind, owner))


class _OwnerClass:
    """Stand-in, with module and name, for the class in whose body a settings class is defined."""

    def __init__(self, settings: type) -> None:
        self.__module__ = settings.__module__
        self.__qualname__ = settings.__qualname__.rpartition(".")[0]


@dataclass(frozen=True)
class Chosen:
    """Annotation of a field that holds the settings of the component named by `kind`.

    The value may be settings, a mapping with `kind`, or only the component's name.
    """

    component_kind: str
    default: str
    """Name of the component if a mapping has no `kind`."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Return the schema that checks a value by the method `settings`; it accepts null if the
        field's type does.
        """
        component_schema = core_schema.no_info_plain_validator_function(
            self.settings, serialization=core_schema.plain_serializer_function_ser_schema(dict)
        )
        return (
            core_schema.nullable_schema(component_schema)
            if type(None) in get_args(source)
            else component_schema
        )

    def settings(self, value: Any) -> ComponentSettings:
        """Return the checked settings of a component.

        Raises:
            PydanticCustomError: there is no such component, or its settings are invalid. The error
                contains all faults.
        """
        if isinstance(value, ComponentSettings):
            if value.component_kind != self.component_kind:
                raise _to_pydantic_error(
                    ConfigError(
                        f"must be settings of one of the {self.component_kind}, is settings of one "
                        f"of the {value.component_kind} ({value.kind}). Give other settings, a "
                        "name, or keys with values"
                    )
                )
            return value
        content = {"kind": value} if isinstance(value, str) else value
        if not isinstance(content, Mapping):
            raise _to_pydantic_error(
                ConfigError(
                    "must be a name, or keys with values that include kind, is "
                    f"{describe_value(value)}"
                )
            )
        try:
            name = self.component_name_in(content)
            if not isinstance(name, str):
                raise ConfigError(f"kind must be a name, is {name!r}")
            settings = find_settings_class(self.component_kind, name)
        except ConfigError as error:
            raise _to_pydantic_error(error, ".kind") from error
        try:
            return settings.model_validate({**content, "kind": name})
        except ValidationError as error:
            raise PydanticCustomError(
                NESTED_FAULTS,
                "{faults}",
                {
                    "faults": describe_faults(settings, error, name),
                    "cause": error,
                    "model": settings,
                    "name": name,
                },
            ) from error

    def component_name_in(self, content: Mapping[str, Any]) -> Any:
        """Return the name of the component whose settings a mapping holds.

        Raises:
            ConfigError: the mapping names no component.
        """
        return content.get("kind", self.default)


def find_settings_class(component_kind: str, name: str) -> type[ComponentSettings]:
    """Return the settings class of a component.

    Raises:
        ConfigError: the component does not exist, or its attribute `Settings` is not a class of
            settings for this kind.
    """
    target = find_component(component_kind, name)
    settings = getattr(target, "Settings", None)
    if not (isinstance(settings, type) and issubclass(settings, ComponentSettings)):
        raise ConfigError(
            f"{name}: its attribute Settings is {settings!r}, must be a class derived from "
            f"the settings of {component_kind} (docs/extending.md)"
        )
    if missing := sorted(getattr(target, "__abstractmethods__", ())):
        raise ConfigError(
            f"{name}: lacks the methods {', '.join(missing)}, which all {component_kind} must have "
            "(docs/extending.md)"
        )
    return settings


def describe_faults(settings_class: type[BaseModel], error: ValidationError, name: str) -> str:
    """Return a description of all faults in settings, as one line.

    Args:
        settings_class: class of the settings.
        error: error from validating the settings.
        name: text in place of a key, for a fault that concerns no single key.
    """
    return "; ".join(_describe_fault_lines(settings_class, error, "", name))


def _describe_fault_lines(
    settings_class: type[BaseModel], error: ValidationError, parent: str, name: str
) -> Iterator[str]:
    for path, faults in group_faults_by_field(settings_class, error):
        key = parent + ".".join(path)
        first, context = faults[0], faults[0].get("ctx", {})
        if len(faults) > 1 and all(fault["type"] in RULE_BY_ERROR_TYPE for fault in faults):
            yield f"{key}: {describe_broken_rule(faults)}"
        elif first["type"] == NESTED_FAULTS:
            yield from _describe_fault_lines(
                context["model"], context["cause"], f"{key}.", context["name"]
            )
        else:
            prefix = f"{key.rstrip('.') or name}: "
            for fault in faults:
                value_note = (
                    f", not {fault['input']!r}"[:100] if fault["type"] == "literal_error" else ""
                )
                yield f"{prefix}{describe_fault(fault)}{value_note}"


def _to_pydantic_error(error: ConfigError, key: str = "") -> PydanticCustomError:
    """Return the pydantic error for a component's name.

    Args:
        error: reason why the component cannot be used.
        key: suffix of the field's key that holds the name, such as `.kind`; empty for the field.
    """
    context = {"message": str(error)}
    if isinstance(error, ComponentNotAllowed):
        context |= {"name": error.name, "why": error.why, "key": key}
    return PydanticCustomError(COMPONENT_FAULT, "{message}", context)


def _to_plain_value(value: Any, *, with_defaults: bool) -> Any:
    """Convert a field's value to JSON values.

    Args:
        value: value, which may contain settings.
        with_defaults: True if nested settings include the fields at their defaults.
    """
    if isinstance(value, Settings):
        return value.semantic() if with_defaults else value.identity()
    if isinstance(value, Mapping):
        return {
            key: _to_plain_value(element, with_defaults=with_defaults)
            for key, element in value.items()
        }
    if isinstance(value, list | tuple):
        return [_to_plain_value(element, with_defaults=with_defaults) for element in value]
    return value


def _to_recorded_content(info: FieldInfo, content: Any) -> Any:
    """Return a field's JSON value as recorded: a mapping that is one value as sorted pairs."""
    return [[*pair] for pair in sorted(content.items())] if ONE_VALUE in info.metadata else content


def _is_default(info: FieldInfo, content: Any) -> bool:
    if info.is_required():
        return False
    default = info.get_default(call_default_factory=True)
    return bool(content == _to_plain_value(default, with_defaults=False))
