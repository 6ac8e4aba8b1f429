"""Reads configurations: YAML files and `key=value` overrides, checked as a whole."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from mclabel.core.components import ComponentNotAllowed, allow_components
from mclabel.core.config.document import MAX_DEPTH, parse_document, read_document
from mclabel.core.config.keys import drop_replaced_settings
from mclabel.core.errors import ConfigError
from mclabel.core.faults import (
    REQUIRED,
    RULE_BY_ERROR_TYPE,
    UNKNOWN_KEY,
    describe_broken_rule,
    describe_fault,
    describe_value,
    group_faults_by_field,
)
from mclabel.core.settings import (
    COMPONENT_FAULT,
    NESTED_FAULTS,
    SENSITIVE,
    Settings,
    list_risky_values,
)

C = TypeVar("C", bound=Settings)
MAX_SHOWN = 200
"""Maximum number of characters of a value in a message."""


def load_config(
    config_class: type[C],
    path: str | Path | None,
    overrides: Sequence[str] = (),
    *,
    allow: Sequence[str] = (),
) -> C:
    """Read a configuration and check it as a whole.

    A file may come from an untrusted source, so it cannot import third-party code by itself. Only
    code that `overrides` or `allow` names is imported.

    Args:
        config_class: class of the configuration.
        path: YAML file; None if there are only overrides.
        overrides: texts `dotted.key=value` with values in YAML. If an override replaces a
            component of the file, the file's keys that the new component lacks are ignored. A
            line on stderr names these keys, unless the file is a bundled one.
        allow: modules and packages, or names `module:Class`, that the file may use.

    Raises:
        ConfigError: the file is missing or is not YAML, or a key is unknown. The error is also
            raised if a value has the wrong type or range, or would run code that the user has not
            allowed. The message lists all faults, and for an unknown key the nearest key.
    """
    content = _read_yaml(Path(path)) if path is not None else {}
    remedy = f"Correct {path} or pass key=value on the command line." if path is not None else ""
    is_bundled = path is not None and (
        find_config_file(path).resolve().is_relative_to(find_bundled_folder("configs").resolve())
    )
    source = None if is_bundled else str(path or "the file")
    return load_config_from_mapping(
        config_class, content, overrides, allowed_components=allow, remedy=remedy, source=source
    )


def load_config_from_mapping(
    config_class: type[C],
    config_mapping: dict[str, Any],
    overrides: Sequence[str] = (),
    *,
    allowed_components: Sequence[str] = (),
    remedy: str = "",
    source: str | None = "the recorded configuration",
) -> C:
    """Check a configuration that was read from a document or from a run's record, as `load_config`
    does.

    Args:
        config_class: class of the configuration.
        config_mapping: untrusted keys and values; overrides are written into this mapping.
        overrides: texts `dotted.key=value`.
        allowed_components: modules and packages, or names `module:Class`, that `config_mapping` may
            use.
        remedy: last sentence of the error message.
        source: name of the document for messages; None prints no message about ignored keys.
    """
    document = deepcopy(config_mapping)
    for override in _sort_overrides(overrides):
        _apply_override(config_mapping, override)
    override_values = {
        key: parse_document(raw)
        for key, _, raw in (key_value.partition("=") for key_value in overrides)
    }
    with allow_components({*allowed_components, *_iterate_strings(list(override_values.values()))}):
        for dropped in drop_replaced_settings(
            config_class, document, config_mapping, override_values
        ):
            if source is None:
                continue
            keys, verb = ", ".join(dropped.keys), "are" if len(dropped.keys) > 1 else "is"
            print(
                f"mclabel: {keys} of {source} {verb} ignored: kind={dropped.new_component} takes "
                f"the place of kind={dropped.replaced_component} and has no such setting",
                file=sys.stderr,
            )
        checked = check_config(config_class, config_mapping, remedy=remedy)
    refused = [
        f"  {key}: {risk}, so a file alone must not set it to {_shorten_repr(value)}. If you trust "
        f"it, pass {key}={json.dumps(value)} on the command line"
        for key, value, risk in list_risky_values(checked)
        if not any(f"{key}.".startswith(f"{key_value}.") for key_value in override_values)
    ]
    if refused:
        raise ConfigError("\n".join(["the configuration cannot be used:", *refused]))
    return checked


def check_config(config_class: type[C], content: Mapping[str, Any], *, remedy: str = "") -> C:
    """Check a configuration of keys and values as a whole, and return it.

    Args:
        config_class: class of the configuration.
        content: values, settings, or nested keys and values.
        remedy: last sentence of the error message.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or range. The message lists all
            faults.
    """
    try:
        return config_class.model_validate(content)
    except ValidationError as error:
        faults = "\n".join(f"  {fault}" for fault in _describe_faults(config_class, error))
        raise ConfigError(
            f"the configuration cannot be used:\n{faults}\n{remedy}".rstrip()
        ) from None


def _iterate_strings(value: Any) -> Iterator[str]:
    """Yield the strings in a value, also in nested lists and mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for element in value.values() if isinstance(value, dict) else value:
            yield from _iterate_strings(element)


def _sort_overrides(overrides: Sequence[str]) -> list[str]:
    """Return overrides in the order of application: a component's name before its keys.

    An override of a nested key is omitted if a later override replaces the mapping that contains
    it.
    """
    kept: list[str] = []
    for override in overrides:
        key, _, raw = override.partition("=")
        if raw.lstrip().startswith("{"):
            kept = [
                kept_override for kept_override in kept if not kept_override.startswith(f"{key}.")
            ]
        kept.append(override)
    return sorted(kept, key=lambda override: override.partition("=")[0].count("."))


def find_bundled_config(name: str) -> Path:
    """Return the path of a bundled configuration, e.g. `label/quickstart.yaml`."""
    return find_bundled_folder("configs") / name


def find_bundled_folder(name: str) -> Path:
    """Return the folder `configs` or `docs`, in the installed package or beside its source."""
    package = Path(__file__).parents[2]
    installed = package / name
    return installed if installed.is_dir() else package.parent / name


def find_config_file(path: str | Path) -> Path:
    """Return `path` if this file exists, else the path of the bundled configuration of this
    name.
    """
    path = Path(path)
    if not path.is_file() and path.parts[:1] == ("configs",):
        return find_bundled_config("/".join(path.parts[1:]))
    return path


def _read_yaml(given_path: Path) -> dict[str, Any]:
    path = find_config_file(given_path)
    if given_path.suffix in (".jsonl", ".csv", ".parquet"):
        raise ConfigError(
            f"{given_path}: is a data file, but the first argument must be a configuration. Name "
            "a YAML file first, such as configs/label/own-data.yaml, and then "
            f"problems.source={given_path}"
        )
    try:
        content = read_document(path)
    except FileNotFoundError:
        raise ConfigError(_describe_missing_file(given_path)) from None
    except OSError as error:
        raise ConfigError(
            f"{given_path}: cannot be read ({error.strerror}). Give a YAML file that you have "
            "permission to read"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{given_path}: is not a valid YAML file: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(
            f"{given_path}: must hold keys and values, one per line, such as `out: runs/mine` "
            f"(with a space after the colon), but holds {describe_value(content)}"
        )
    return content


def _describe_missing_file(path: Path) -> str:
    if "=" in path.name:
        return (
            f"{path}: no such configuration file. The first argument is the configuration, and "
            "KEY=VALUE come after it. Name a YAML file first, such as configs/label/quickstart.yaml"
        )
    folder = find_bundled_folder("configs")
    bundled = [f"configs/{p.relative_to(folder).as_posix()}" for p in folder.glob("*/*.yaml")]
    searched_places = ", neither here nor in the package" if path.parts[:1] == ("configs",) else ""
    nearest = difflib.get_close_matches(path.as_posix(), bundled, n=1, cutoff=0.6)
    hint = (
        f"did you mean {nearest[0]}?" if nearest else f"mclabel brings {', '.join(sorted(bundled))}"
    )
    return f"{path}: no such configuration file{searched_places}; {hint}"


def _apply_override(content: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(
            f"{_shorten_repr(override)}: an override must have the form key=value, such as "
            "estimator.kind=bisect"
        )
    try:
        value = parse_document(raw)
    except ValueError as error:
        raise ConfigError(
            f"{key[:MAX_SHOWN]}: the value is not valid YAML: {error}. If it is a string, put it "
            f"in quotes: {key[:MAX_SHOWN]}='\"…\"'"
        ) from None
    *parents, last = key.split(".")
    if len(parents) > MAX_DEPTH:
        raise ConfigError(f"{_shorten_repr(override)}: nested deeper than {MAX_DEPTH} levels")
    inner: dict[str, Any] | list[Any] = content
    for parent in parents:
        key_or_index = _parse_key_or_index(inner, parent, override)
        child = (
            inner[key_or_index] if isinstance(inner, list) else inner.setdefault(key_or_index, {})
        )
        if isinstance(child, str):  # the name of a component; the override sets one of its keys
            child = inner[key_or_index] = {"kind": child}
        if not isinstance(child, dict | list):
            raise ConfigError(
                f"{_shorten_repr(override)}: {parent} has a single value, so it cannot have keys "
                "below it"
            )
        inner = child
    inner[_parse_key_or_index(inner, last, override)] = value


def _parse_key_or_index(content: dict[str, Any] | list[Any], name: str, override: str) -> Any:
    """Return the part `name` of an override's key: as it is for a mapping, as an integer index for
    a list (`completers.0.model=…`).
    """
    if isinstance(content, dict):
        return name
    indices = {str(index): index for index in range(len(content))}
    if name not in indices:
        raise ConfigError(
            f"{_shorten_repr(override)}: there is no element {_shorten_repr(name)} in a list of "
            f"{len(content)}. Elements are counted from 0. Give the whole list to add one"
        )
    return indices[name]


def _shorten_repr(value: Any) -> str:
    """Return the representation of a value, shortened to `MAX_SHOWN` characters."""
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _describe_faults(
    config_class: type[Settings], error: ValidationError, parent: str = "", component: str = ""
) -> Iterator[str]:
    """Yield one line for each error in invalid settings, including the settings of nested
    components.

    Args:
        config_class: class of the invalid settings.
        error: error from validating the settings.
        parent: dotted path to the settings, with a dot at its end.
        component: name of the component that the settings belong to; empty if there is none.
    """
    for path, errors in group_faults_by_field(config_class, error):
        if len(errors) > 1 and all(error["type"] in RULE_BY_ERROR_TYPE for error in errors):
            if (fault := _describe_missing_space(path, errors[0], parent)) is not None:
                yield fault
                continue
            place = _write_key_and_value(config_class, path, errors[0], parent)
            yield f"{place}: {describe_broken_rule(errors)}"
            continue
        for detail in errors:
            if detail["type"] == NESTED_FAULTS:
                nested, name = detail["ctx"]["model"], detail["ctx"]["name"]
                below = f"{parent}{'.'.join(path)}."
                yield from _describe_faults(nested, detail["ctx"]["cause"], below, name)
            else:
                yield _describe_fault(config_class, path, detail, parent, component)


def _write_key_and_value(
    config_class: type[Settings], path: Sequence[str], error: Mapping[str, Any], parent: str
) -> str:
    """Return the text `key=value` for a message; only the key if the value could be a secret."""
    key = parent + ".".join(path)
    return key if _may_be_secret(config_class, path) else f"{key}={_shorten_repr(error['input'])}"


def _describe_fault(
    config_class: type[Settings],
    path: Sequence[str],
    error: Mapping[str, Any],
    parent: str,
    component: str,
) -> str:
    key = parent + ".".join(path)
    if error["type"] == COMPONENT_FAULT and "why" in error["ctx"]:
        name, component_key = error["ctx"]["name"], f"{key}{error['ctx']['key']}"
        return (
            f"{key}: {name} {error['ctx']['why']}. If you trust it, pass "
            f"{ComponentNotAllowed.format_allow_option(name)}, or {component_key}={name} on the "
            "command line"
        )
    if error["type"] == COMPONENT_FAULT:
        return f"{key}: {error['ctx']['message']}"
    if error["type"] in UNKNOWN_KEY:
        known_keys = [parent + name for name in _list_known_keys(config_class)]
        if component:
            nearest = difflib.get_close_matches(
                path[-1], config_class.model_fields, n=1, cutoff=0.6
            )
            suggestion = f"; did you mean {parent}{nearest[0]}?" if nearest else "."
            setting_names = ", ".join(name for name in config_class.model_fields if name != "kind")
            return (
                f"{key}: not a setting of kind={component}{suggestion} It has "
                f"{setting_names or 'none'}"
            )
        key_meant = _find_nearest_key(key, path[-1], known_keys, config_class, parent)
        return f"{key}: unknown key" + (f"; did you mean {key_meant}?" if key_meant else "")
    if error["type"] in REQUIRED:
        return f"{key}: required. Set it in the file or pass {key}=…"
    if error["type"] == "value_error":  # from a validator of mclabel, whose message is complete
        return f"{key.rstrip('.')}: {describe_fault(error)}".removeprefix(": ")
    if (fault := _describe_missing_space(path, error, parent)) is not None:
        return fault
    return f"{_write_key_and_value(config_class, path, error, parent)}: {describe_fault(error)}"


def _find_nearest_key(
    key: str, name: str, known_keys: Sequence[str], config_class: type[Settings], parent: str
) -> str | None:
    """Return the known key nearest to an unknown key, preferably one with the same last part."""
    from mclabel.core.config.keys import list_configuration_keys

    candidates = [
        parent + candidate.name
        for candidate in list_configuration_keys(config_class, built_in=True)
    ]
    same_name = [candidate for candidate in candidates if candidate.rpartition(".")[2] == name]
    nearest = (
        difflib.get_close_matches(key, same_name, n=1, cutoff=0)
        or difflib.get_close_matches(key, known_keys, n=1, cutoff=0.5)
        or difflib.get_close_matches(name, known_keys, n=1, cutoff=0.5)
    )
    return nearest[0] if nearest else None


def _describe_missing_space(
    path: Sequence[str], error: Mapping[str, Any], parent: str
) -> str | None:
    """Return the message for `{name:value}`, which YAML reads as one key because the space after
    the colon is missing; None for other errors.
    """
    if error["input"] is not None or ":" not in path[-1]:
        return None
    name, _, value = path[-1].partition(":")
    shown = f"{name}: {value}"
    return (
        f"{parent}{'.'.join(path)}: YAML reads {path[-1]!r} as a key without a value. Write a "
        f"space after the colon: {'.'.join(path[:-1])}='{{{shown}}}'"
    )


def _may_be_secret(config_class: type[Settings], path: Sequence[str]) -> bool:
    """Return whether the value of a key could be a secret."""
    current: Any = config_class
    for part in path:
        if not (isinstance(current, type) and issubclass(current, Settings)):
            break
        info = current.model_fields.get(part)
        if info is None:
            return False
        if SENSITIVE in info.metadata:
            return True
        current = info.annotation
    return False


def _list_known_keys(config_class: type[Settings], parent: str = "") -> list[str]:
    keys = []
    for name, info in config_class.model_fields.items():
        keys.append(parent + name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            keys += _list_known_keys(info.annotation, f"{parent}{name}.")
    return keys
