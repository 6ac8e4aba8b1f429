"""Finds components by their names in a configuration, and imports a component only when needed.

Built-in components are in a literal dict of their package. Other packages add components by the
entry-point group `mclabel.<kind>`. A name `module:Class` needs no registration, but importing it
can run any code. So a configuration file may use such a name only if the command line also names it
(`allow_components`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from inspect import isfunction, ismethod, ismodule
from typing import Any

from mclabel.core.errors import ConfigError

BUILT_IN: Mapping[str, str] = {
    "estimators": "mclabel.labeling.estimators:ESTIMATORS",
    "engines": "mclabel.engines:ENGINES",
    "checkers": "mclabel.checkers:CHECKERS",
    "judges": "mclabel.judge:JUDGES",
    "searches": "mclabel.search:SEARCHES",
    "scorers": "mclabel.search.scorers:SCORERS",
    "credits": "mclabel.rl.credits:CREDITS",
    "readers": "mclabel.data.readers:READERS",
    "formats": "mclabel.data.exchange:FORMATS",
    "targets": "mclabel.prm.examples.targets:TARGETS",
    "weights": "mclabel.prm.examples.targets:WEIGHTS",
    "selections": "mclabel.select:RULES",
    "losses": "mclabel.prm.training.settings:LOSSES",
}
"""For each kind of component, the place `module:NAME` of a dict, which maps the names of built-in
components to their places `module:object`."""

DOCS_PAGES: Mapping[str, str] = {
    "estimators": "docs/extending-estimator.md",
    "engines": "docs/extending-engine.md",
    "checkers": "docs/extending-checker.md",
    "judges": "docs/extending-judge.md",
    "searches": "docs/search.md",
    "scorers": "docs/search.md",
    "credits": "docs/rl.md",
    "readers": "docs/extending-formats.md",
    "formats": "docs/extending-formats.md",
    "selections": "docs/select.md",
    **dict.fromkeys(("targets", "weights", "losses"), "docs/extending.md"),
}
"""Page of the documentation for third-party components of each kind."""
_CONFIG_KEYS = {
    "engines": "policy.engine",
    "judges": "judge",
    "searches": "search.kind",
    "scorers": "scorer.kind",
    "credits": "credit.kind",
}
"""Configuration key that names a component of each kind, for messages."""

_allowed: ContextVar[frozenset[str] | None] = ContextVar("_allowed", default=None)
"""Modules, packages and names `module:Class` that may be imported; None allows all, as for callers
in Python."""


class ComponentNotAllowed(ConfigError):
    """Error if a configuration names code that the user has not allowed on the command line."""

    def __init__(self, name: str, why: str) -> None:
        """Build the message, which names the code and the option that allows it.

        Args:
            name: `module:Class`.
            why: clause whose subject is the name.
        """
        super().__init__(f"{name} {why}. If you trust it, pass {self.format_allow_option(name)}")
        self.name, self.why = name, why

    @staticmethod
    def format_allow_option(name: str) -> str:
        """Return the command line option that allows the code of a name."""
        return f"--allow {name.partition(':')[0]}"


@contextmanager
def allow_components(allowed: Iterable[str]) -> Iterator[None]:
    """Allow only the given names `module:Class` to be imported as components in this context.

    Built-in components and entry points of installed packages are always allowed.

    Args:
        allowed: modules and packages, which allow all of their own objects, and names
            `module:Class`.
    """
    token = _allowed.set(frozenset(allowed))
    try:
        yield
    finally:
        _allowed.reset(token)


def list_component_names(component_kind: str, *, built_in: bool = False) -> list[str]:
    """Return the names of a kind's components, the built-in ones first.

    Args:
        component_kind: a key of `BUILT_IN`.
        built_in: True omits components of other packages.
    """
    if built_in:
        return list(_list_built_in(component_kind))
    return [
        *_list_built_in(component_kind),
        *sorted(set(_find_entry_points(component_kind)) - set(_list_built_in(component_kind))),
    ]


FUNCTION_ADAPTERS: Mapping[str, str] = {
    "checkers": "mclabel.checkers.function:FunctionChecker",
    "judges": "mclabel.judge:JUDGES",
    "readers": "mclabel.data.readers.sources:FunctionReader",
}
"""Kinds of components that may be plain functions, each with the class that calls the function."""


def find_component(component_kind: str, name: str) -> Any:
    """Return the class of a component; for a plain function, return the class that calls it.

    Args:
        component_kind: a key of `BUILT_IN`.
        name: name of a built-in component or another package's entry point, or `module:Class`.

    Raises:
        ComponentNotAllowed: the component must not be imported.
        ConfigError: there is no such component, or it cannot be imported.
    """
    target = find_target(component_kind, name)
    if component_kind in FUNCTION_ADAPTERS and (isfunction(target) or ismethod(target)):
        return _import_object(FUNCTION_ADAPTERS[component_kind])
    return target


_third_party_names: dict[str, None] = {}
"""Names of the third-party components that were found, in order. The dict serves as an ordered
set."""


def list_third_party_components() -> list[str]:
    """Return the names of the components of other packages that this process has looked up."""
    return list(_third_party_names)


def find_target(component_kind: str, name: str) -> Any:
    """Return the class or function of a component.

    The result is not cached, because a notebook may define the class again.

    Args:
        component_kind: a key of `BUILT_IN`.
        name: name of a built-in component or another package's entry point, or `module:Class`.

    Raises:
        ComponentNotAllowed: the component must not be imported.
        ConfigError: there is no such component, or it cannot be imported.
    """
    built_in, entry_points_by_name = (
        _list_built_in(component_kind),
        _find_entry_points(component_kind),
    )
    if name in built_in:
        return _import_object(built_in[name])
    if name in entry_points_by_name:
        target = _load_entry_point(name, entry_points_by_name[name])
    elif ":" in name:
        target = _find_user_component(name)
    else:
        names = list_component_names(component_kind)
        nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        suggestion = f"did you mean {nearest[0]}? " if nearest else ""
        raise ConfigError(
            f"{name}: is not among the {component_kind}. {suggestion}Choose one of "
            f"{', '.join(names)}, or module:Class of your own"
        )
    _third_party_names[name] = None
    return target


def load_component_class(settings: Any, base: type) -> Any:
    """Return the component class of settings, which must derive from the base class of its kind.

    Raises:
        ConfigError: the class does not derive from `base`. The message names the key and the page
            of the documentation.
    """
    target, component_kind = settings.component, settings.component_kind
    if isinstance(target, type) and issubclass(target, base):
        return target
    base_path = f"{base.__module__}.{base.__qualname__}"
    raise ConfigError(
        f"{_CONFIG_KEYS[component_kind]}={settings.kind}: must be a class derived from {base_path} "
        f"({DOCS_PAGES[component_kind]})"
    )


def find_component_name(component_kind: str, target: Any) -> str:
    """Return a component's name from its class or function; the inverse of `find_component`."""
    path = f"{target.__module__}:{target.__qualname__}"
    names_by_path = {value: name for name, value in _list_built_in(component_kind).items()}
    names_by_entry_point = {
        point.value: name for name, point in _find_entry_points(component_kind).items()
    }
    return names_by_path.get(path) or names_by_entry_point.get(path) or path


def _load_entry_point(name: str, point: EntryPoint) -> Any:
    package = point.dist.name if point.dist is not None else "a package without a name"
    try:
        return point.load()
    except Exception as error:  # another package's code may raise any error
        raise ConfigError(
            f"{name}: the entry point {point.value} of {package} cannot be loaded "
            f"({type(error).__name__}: {error}). Repair or remove that package"
        ) from error


def _find_user_component(name: str) -> Any:
    allowed = _allowed.get()
    is_named = allowed is None or name in allowed
    if not is_named and not _is_in_allowed_package(name.partition(":")[0], allowed):
        raise ComponentNotAllowed(
            name,
            "is code that is named only in a file, so for security it is neither imported nor "
            "called",
        )
    try:
        target = _import_object(name, through_modules=is_named)
    except Exception as error:  # the user's code may raise any error
        raise ConfigError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}). Give module:Class of "
            "a module that Python can import on every node that runs an engine (PYTHONPATH=. "
            "adds the current folder)"
        ) from error
    defining_module = getattr(target, "__module__", None)
    if (
        not is_named
        and callable(target)
        and not _is_in_allowed_package(str(defining_module), allowed)
    ):
        raise ComponentNotAllowed(
            f"{defining_module}:{getattr(target, '__qualname__', name)}",
            f"is the actual object of {name}",
        )
    return target


def _is_in_allowed_package(module: str, allowed: Iterable[str] | None) -> bool:
    """Return whether a module or one of its parent packages is allowed."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed or ())


@cache
def _list_built_in(component_kind: str) -> Mapping[str, str]:
    return _import_object(BUILT_IN[component_kind])  # type: ignore[no-any-return]


@cache
def _find_entry_points(component_kind: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"mclabel.{component_kind}")}


def _import_object(target: str, *, through_modules: bool = True) -> Any:
    """Import the object at `module:object`.

    Args:
        target: name of the object, `module:object`.
        through_modules: True if the object may also be an attribute of a module that this module
            imports, as in `module:other.object`.
    """
    module, _, name = target.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
        if ismodule(value) and not through_modules:
            raise ImportError(f"{part} is another module")
    return value
