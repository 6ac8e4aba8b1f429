"""Generates the reference of all configuration keys from the declarations of the settings.

`mclabel label --keys` prints the reference, and `docs/keys.md` contains it.
`drop_replaced_settings` removes a file's settings that the component chosen on the command line
does not have.
"""

from __future__ import annotations

import difflib
import json
import textwrap
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len, Lt, MaxLen, MinLen
from pydantic.fields import FieldInfo

from mclabel.core.components import ComponentNotAllowed, find_target, list_component_names
from mclabel.core.errors import ConfigError
from mclabel.core.settings import OPERATIONAL, AtMost, Chosen, Settings, find_settings_class

_WORDS = {int: "integer", float: "number", bool: "true or false", str: "string", Any: "any value"}


@dataclass(frozen=True, kw_only=True)
class Key:
    """One key of a configuration."""

    name: str
    """Dotted path, as in a YAML file or in `key=value`."""
    type: str
    """Type, choices and range, in words."""
    default: str | None
    """Default in YAML; None if a value is required."""
    sentence: str
    """Docstring of the field, as one line."""
    is_operational: bool
    """True if the key may change when a run is resumed, because labels do not depend on it."""
    components: tuple[str, ...] = ()
    """Names (values of `kind`) of the components that have this setting; empty for a setting of the
    job itself."""

    def text(self) -> str:
        """Format the key for a terminal: name, type and default, then its meaning."""
        default = "required" if self.default is None else f"default {self.default}"
        component_note = f" [kind={', '.join(self.components)}]" if self.components else ""
        head = f"{self.name}{component_note}: {self.type}; {default}"
        return "\n".join(
            [
                head,
                *textwrap.wrap(self.sentence, 96, initial_indent="    ", subsequent_indent="    "),
            ]
        )


def list_configuration_keys(
    settings_class: type[Settings], *, built_in: bool = False, extra_components: Sequence[str] = ()
) -> list[Key]:
    """Return every key of a configuration, in the order of declaration.

    If several components declare the same setting with equal text, it is returned as one key.

    Args:
        settings_class: class of the configuration, such as `LabelConfig`.
        built_in: True omits the components that other packages add.
        extra_components: names `module:Class` of further components to import. They have no entry
            point.

    Raises:
        ConfigError: a component in `extra_components` cannot be imported.
    """
    for name in extra_components:
        find_target("estimators", name)  # only to raise an import error; the kind does not matter
    merged: dict[tuple[str, ...], Key] = {}
    for key in _list_keys(
        settings_class, _KeyContext(built_in=built_in, extra_components=tuple(extra_components))
    ):
        identity = (key.name, key.type, str(key.default), key.sentence)
        equal_key = merged.get(identity)
        if equal_key is not None:
            components = tuple(dict.fromkeys(equal_key.components + key.components))
            key = replace(equal_key, components=components)
        merged[identity] = key
    return list(merged.values())


def find_keys(keys: Sequence[Key], word: str) -> list[Key]:
    """Return the keys whose name or component contains a word; if there are none, the keys whose
    docstring contains it.

    Args:
        keys: keys to search.
        word: word in upper or lower case; the empty word matches all keys.

    Raises:
        ConfigError: no key contains the word. The message names the nearest key.
    """
    lowercase_word = word.lower()
    by_name = [
        key
        for key in keys
        if lowercase_word in key.name.lower() or lowercase_word in map(str.lower, key.components)
    ]
    matching = by_name or [key for key in keys if lowercase_word in key.sentence.lower()]
    if not matching:
        names = {name: None for key in keys for name in (key.name, key.name.split(".")[-1])}
        nearest = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
        suggestion = f"did you mean {nearest[0]}? " if nearest else ""
        raise ConfigError(
            f"--keys {word}: no key contains this word; {suggestion}--keys without a "
            "word prints all keys"
        )
    return matching


@dataclass(frozen=True, kw_only=True)
class _KeyContext:
    """The path of a group of settings in a configuration, and the components to which the settings
    belong.
    """

    parent: str = ""
    """Dotted path to the settings, with a dot at its end."""
    components: tuple[str, ...] = ()
    is_operational: bool = False
    built_in: bool
    extra_components: tuple[str, ...] = ()


def _list_keys(
    settings_class: type[Settings], context: _KeyContext, outer: Settings | None = None
) -> Iterator[Key]:
    """Yield the keys of a settings class.

    Args:
        settings_class: class of the settings.
        context: position of the settings in the configuration.
        outer: default that the enclosing class gives these settings; None if their own defaults
            apply.
    """
    for name, info in settings_class.model_fields.items():
        path = context.parent + name
        operational = context.is_operational or OPERATIONAL in info.metadata
        inner_context = replace(context, parent=f"{path}.", is_operational=operational)
        component_field = next((mark for mark in info.metadata if isinstance(mark, Chosen)), None)
        if component_field is not None:
            may_be_null = not info.is_required() and _get_default(info) is None
            yield from _list_chosen_keys(
                component_field,
                inner_context,
                _read_field_docstring(settings_class, name),
                may_be_null=may_be_null,
            )
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            default = None if info.is_required() else _get_default(info)
            yield from _list_keys(info.annotation, inner_context, default)
        elif not (context.components and name == "kind"):
            yield Key(
                name=path,
                type=describe_type(info.annotation, info.metadata),
                default=_format_default_value(getattr(outer, name))
                if outer is not None
                else None
                if info.is_required()
                else _format_default_value(_get_default(info)),
                sentence=_read_field_docstring(settings_class, name),
                is_operational=operational,
                components=context.components,
            )


def _list_chosen_keys(
    component_field: Chosen, context: _KeyContext, sentence: str, *, may_be_null: bool
) -> Iterator[Key]:
    names = list_component_names(component_field.component_kind, built_in=context.built_in)
    null = ", or null" if may_be_null else ""
    yield Key(
        name=f"{context.parent}kind",
        type=f"{', '.join(names)}, or module:Class of your own{null}",
        default="null" if may_be_null else component_field.default,
        sentence=sentence,
        is_operational=context.is_operational,
    )
    for name in names:
        settings = find_settings_class(component_field.component_kind, name)
        yield from _list_keys(settings, replace(context, components=(name,)))
    for name in context.extra_components:
        with suppress(ConfigError):  # a component of another kind
            settings = find_settings_class(component_field.component_kind, name)
            if settings.component_kind == component_field.component_kind:
                yield from _list_keys(settings, replace(context, components=(name,)))


def _read_field_docstring(settings_class: type[Settings], name: str) -> str:
    """Return the docstring of a field as one line; if the class does not document the field, that
    of its base class.
    """
    infos = (getattr(base, "model_fields", {}).get(name) for base in settings_class.__mro__)
    docstrings = (_join_lines(info.description) for info in infos if info is not None)
    return next(filter(None, docstrings), "")


def _get_default(info: FieldInfo) -> Any:
    return info.get_default(call_default_factory=True)


def _format_default_value(value: Any) -> str:
    if isinstance(value, str):
        return value if value else "''"
    return json.dumps(value, ensure_ascii=False, default=str)


def _join_lines(text: str | None) -> str:
    return " ".join((text or "").split())


def describe_type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """Describe a type and its range in plain words.

    Args:
        annotation: type of a field, which may be nested.
        metadata: pydantic's constraints of the field.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(arguments[0], (*metadata, *arguments[1:]))
    if origin in (Union, types.UnionType):
        alternatives = [
            describe_type(argument, metadata)
            for argument in arguments
            if argument is not type(None)
        ]
        nullable = ["null"] if type(None) in arguments else []
        return " or ".join([*dict.fromkeys(alternatives), *nullable])
    if origin is Literal:
        return " | ".join(str(argument) for argument in arguments)
    limits = _describe_limits(metadata)
    if origin is tuple and arguments[-1:] != (Ellipsis,):
        return f"list of {len(arguments)}: {', '.join(map(describe_type, arguments))}"
    if origin in (list, tuple) and arguments:
        return f"list of {describe_type(arguments[0])}{limits}"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"keys with values: {describe_type(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Settings):
        return f"keys: {', '.join(annotation.model_fields)}"
    return f"{_WORDS.get(annotation, getattr(annotation, '__name__', str(annotation)))}{limits}"


def _describe_limits(metadata: Sequence[Any]) -> str:
    limits = []
    for mark in metadata:
        match mark:
            case Ge(ge=limit):
                limits.append(f">= {limit}")
            case Gt(gt=limit):
                limits.append(f"> {limit}")
            case Le(le=limit):
                limits.append(f"<= {limit}")
            case Lt(lt=limit):
                limits.append(f"< {limit}")
            case AtMost(limit=limit):
                limits.append(f"<= {limit}")
            case MinLen(min_length=limit) if limit:
                limits.append(f"at least {limit}")
            case MaxLen(max_length=limit):
                limits.append(f"at most {limit}")
            case Len(min_length=minimum, max_length=maximum):
                limits += [f"at least {minimum}"] * bool(minimum) + [f"at most {maximum}"] * bool(
                    maximum
                )
    return f" {', '.join(limits)}" if limits else ""


@dataclass(frozen=True, kw_only=True)
class DroppedKeys:
    """Settings in a file that belong to a component which an override has replaced by another."""

    keys: tuple[str, ...]
    """Dotted keys of the settings, in the order of the file."""
    replaced_component: str
    """Name of the component in the file."""
    new_component: str
    """Name of the component that replaces it and does not have these settings."""


def drop_replaced_settings(
    settings_class: type[Settings],
    file: Mapping[str, Any],
    content: dict[str, Any],
    override_keys: Collection[str],
    parent: str = "",
) -> Iterator[DroppedKeys]:
    """Remove from a configuration the file's settings of components that overrides have replaced.

    Keys that the new component also has are kept. Keys that neither component has are kept too, so
    that the check of the configuration reports them.

    Args:
        settings_class: class of the configuration, or of settings in it.
        file: content of the file.
        content: content of the file with the overrides applied; changed in place.
        override_keys: dotted keys of the overrides, which are always kept.
        parent: dotted path to the settings, with a dot at its end.
    """
    for name, info in settings_class.model_fields.items():
        file_value, merged_value, path = file.get(name), content.get(name), parent + name
        if (
            not isinstance(file_value, Mapping)
            or not isinstance(merged_value, dict)
            or path in override_keys
        ):
            continue
        component_field = next((mark for mark in info.metadata if isinstance(mark, Chosen)), None)
        if component_field is not None:
            yield from _find_dropped_keys(
                component_field, file_value, merged_value, override_keys, path
            )
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from drop_replaced_settings(
                info.annotation, file_value, merged_value, override_keys, f"{path}."
            )


def _find_dropped_keys(
    component_field: Chosen,
    file_settings: Mapping[str, Any],
    merged_settings: dict[str, Any],
    override_keys: Collection[str],
    path: str,
) -> Iterator[DroppedKeys]:
    try:
        file_component, chosen_component = (
            component_field.component_name_in(file_settings),
            component_field.component_name_in(merged_settings),
        )
        if (
            file_component == chosen_component
            or not isinstance(file_component, str)
            or not isinstance(chosen_component, str)
        ):
            return
        file_component_keys = _list_component_keys(
            component_field.component_kind, file_component, file_settings
        )
        chosen_component_keys = find_settings_class(
            component_field.component_kind, chosen_component
        ).model_fields
    except ConfigError:
        return  # the check of the configuration reports the unknown component
    nested_prefixes = tuple(f"{key}." for key in override_keys)
    keys = [
        key
        for key in file_settings
        if key in file_component_keys
        and key not in chosen_component_keys
        and not any(prefix.startswith(f"{path}.{key}.") for prefix in nested_prefixes)
    ]
    for key in keys:
        del merged_settings[key]
    if keys:
        yield DroppedKeys(
            keys=tuple(f"{path}.{key}" for key in keys),
            replaced_component=file_component,
            new_component=chosen_component,
        )


def _list_component_keys(
    component_kind: str, name: str, file_settings: Mapping[str, Any]
) -> Collection[str]:
    """Return the names of a component's settings; if the component must not be imported, the keys
    in `file_settings`.
    """
    try:
        return find_settings_class(component_kind, name).model_fields
    except ComponentNotAllowed:
        return file_settings.keys() - {"kind"}
