"""Reads configurations: YAML files and `key=value` overrides, checked as a whole."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from mclabel.config.base import SENSITIVE, Config
from mclabel.errors import ConfigError

C = TypeVar("C", bound=Config)

MAX_BYTES = 1 << 20


def load_config(kind: type[C], path: str | Path | None, overrides: Sequence[str] = ()) -> C:
    """Read a configuration and check it as a whole.

    Args:
        kind: what to read.
        path: YAML file; None for overrides alone.
        overrides: `dotted.key=value`, values in YAML.

    Raises:
        ConfigError: the file is missing or no YAML, a key is unknown (the nearest one is
            named), a value has the wrong type or range. All faults at once.
    """
    content = _read_yaml(Path(path)) if path is not None else {}
    for override in overrides:
        _apply(content, override)
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        where = f" Mend {path} or pass key=value." if path is not None else ""
        faults = "\n".join(f"  {_fault(kind, dict(e))}" for e in error.errors())
        raise ConfigError(
            f"the configuration cannot be used:\n{faults}\n{where.strip()}".rstrip()
        ) from None


def bundled_config(name: str) -> Path:
    """A configuration that comes with the package, e.g. `label/quickstart.yaml`."""
    package = Path(__file__).parents[1]
    installed = package / "configs" / name
    return installed if installed.is_file() else package.parent / "configs" / name


def config_file(path: str | Path) -> Path:
    """The file of a configuration: the one at `path`, or the bundled `configs/…` of that name."""
    path = Path(path)
    if not path.is_file() and path.parts[:1] == ("configs",):
        return bundled_config("/".join(path.parts[1:]))
    return path


def _read_yaml(path: Path) -> dict[str, Any]:
    path = config_file(path)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ConfigError(
                f"{path}: more than {MAX_BYTES:,} bytes, so it is no configuration. Give a YAML "
                "file of keys and values; data go into files that it names"
            )
        content = yaml.safe_load(raw.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such configuration file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: not a readable YAML file: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must hold keys and values, holds a {type(content).__name__}")
    return content


def _apply(content: dict[str, Any], override: str) -> None:
    key, equals, raw = override.partition("=")
    if not equals or not key:
        raise ConfigError(
            f"{override!r}: overrides are written key=value, e.g. estimator.kind=bisect"
        )
    try:
        new = yaml.safe_load(raw)
    except yaml.YAMLError as error:
        why = getattr(error, "problem", None) or "cannot be read"
        raise ConfigError(f"{key}: the value is not YAML: {why}. Quote it: {key}='\"…\"'") from None
    *parents, last = key.split(".")
    for parent in parents:
        child = content.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"{override!r}: {parent} holds a value, not keys")
        content = child
    content[last] = new


def _fault(kind: type[Config], error: Mapping[str, Any]) -> str:
    path = [str(part) for part in error["loc"]]
    key = ".".join(path)
    if error["type"] == "extra_forbidden":
        known = _known_keys(kind)
        near = difflib.get_close_matches(key, known, n=1, cutoff=0.5) or difflib.get_close_matches(
            path[-1], known, n=1, cutoff=0.5
        )
        return f"{key}: unknown key" + (f"; did you mean {near[0]}?" if near else "")
    if error["type"] == "missing":
        return f"{key}: required. Set it in the file or pass {key}=…"
    if error["type"] == "value_error":  # of a rule of ours, which says what is wrong
        return f"{key}: {error['ctx']['error']}"
    shown = key if _sensitive(kind, path) else f"{key}={error['input']!r}"
    return f"{shown}: {error['msg'].lower()}"


def _sensitive(kind: type[Config], path: Sequence[str]) -> bool:
    """Whether a value at this place could be a secret."""
    current: Any = kind
    for part in path:
        if not (isinstance(current, type) and issubclass(current, Config)):
            break
        info = current.model_fields.get(part)
        if info is None:
            return False
        if SENSITIVE in info.metadata:
            return True
        current = info.annotation
    return False


def _known_keys(kind: type[Config], parent: str = "") -> list[str]:
    keys = []
    for name, info in kind.model_fields.items():
        keys.append(parent + name)
        if isinstance(info.annotation, type) and issubclass(info.annotation, Config):
            keys += _known_keys(info.annotation, f"{parent}{name}.")
    return keys
