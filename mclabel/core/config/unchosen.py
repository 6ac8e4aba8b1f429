"""Settings in a file of a component that an override replaces by another one.

A file that holds `estimator: {kind: fixed, rollouts: 8}` can be run with `estimator.kind=outcome`:
what the new component does not have, the file has said of the old one alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mclabel.core.components import NotAllowed
from mclabel.core.errors import ConfigError
from mclabel.core.settings import Chosen, Settings, settings_class


@dataclass(frozen=True, kw_only=True)
class Unchosen:
    """Settings that a file gives to a component which an override has replaced."""

    keys: tuple[str, ...]
    """Dotted, in the order of the file."""
    before: str
    """The component of the file."""
    now: str
    """The component in its place, which has no such settings."""


def drop_unchosen(
    kind: type[Settings],
    file: Mapping[str, Any],
    content: dict[str, Any],
    given: Collection[str],
    parent: str = "",
) -> Iterator[Unchosen]:
    """Take out of a configuration what its file says of components that are no longer chosen.

    Keys that the new component has too are kept, and so is what no component has: checking names
    it as a fault.

    Args:
        kind: of the configuration, or of settings in it.
        file: as the file has it.
        content: the same after the overrides; changed in place.
        given: dotted keys of the overrides, which are kept whatever they say.
        parent: dotted path to the settings, with a dot at its end.
    """
    for name, info in kind.model_fields.items():
        before, now, path = file.get(name), content.get(name), parent + name
        if not isinstance(before, Mapping) or not isinstance(now, dict) or path in given:
            continue
        chosen = next((mark for mark in info.metadata if isinstance(mark, Chosen)), None)
        if chosen is not None:
            yield from _dropped(chosen, before, now, given, path)
        elif isinstance(info.annotation, type) and issubclass(info.annotation, Settings):
            yield from drop_unchosen(info.annotation, before, now, given, f"{path}.")


def _dropped(
    chosen: Chosen,
    before: Mapping[str, Any],
    now: dict[str, Any],
    given: Collection[str],
    path: str,
) -> Iterator[Unchosen]:
    try:
        old, new = chosen.kind_of(before), chosen.kind_of(now)
        if old == new or not isinstance(old, str) or not isinstance(new, str):
            return
        had = _settings_of(chosen.component_kind, old, before)
        has = settings_class(chosen.component_kind, new).model_fields
    except ConfigError:
        return  # there is no such component, which checking names
    keys = [
        key
        for key in before
        if key in had and key not in has and not _is_given(f"{path}.{key}", given)
    ]
    for key in keys:
        del now[key]
    if keys:
        yield Unchosen(keys=tuple(f"{path}.{key}" for key in keys), before=old, now=new)


def _settings_of(component_kind: str, name: str, before: Mapping[str, Any]) -> Collection[str]:
    """Names of a component's settings; of one that may not be imported, all that the file says."""
    try:
        return settings_class(component_kind, name).model_fields
    except NotAllowed:
        return before.keys() - {"kind"}


def _is_given(key: str, given: Collection[str]) -> bool:
    return any(one == key or one.startswith(f"{key}.") for one in given)
