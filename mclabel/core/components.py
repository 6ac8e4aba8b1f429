"""Finds a component by the name that a configuration gives it, and imports it only then.

Built-in components are in a literal dict of their room, other packages add theirs by the
entry-point group `mclabel.<kind>`, and `module:Class` needs no registration. Since that is
anybody's code, a document may name it only where the command line has named it too (`within`).
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
"""`module:NAME` of the dict of each kind, which maps names of built-in components to
`module:object`."""

PAGES: Mapping[str, str] = {
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
"""Page of each kind that describes what a third-party component must do."""
_KEYS = {
    "engines": "policy.engine",
    "judges": "judge",
    "searches": "search.kind",
    "scorers": "scorer.kind",
    "credits": "credit.kind",
}
"""Configuration key that names a component of each kind, for messages."""

_allowed: ContextVar[frozenset[str] | None] = ContextVar("_allowed", default=None)
"""Modules and names that may be imported; None for any, since a Python caller named them."""


class NotAllowed(ConfigError):
    """A name of code that nobody at the command line has named."""

    def __init__(self, name: str, why: str) -> None:
        """Name the code and the option that allows it.

        Args:
            name: `module:Class`.
            why: a clause of which the name is the subject.
        """
        super().__init__(f"{name} {why}. If you trust it, pass {self.option(name)}")
        self.name, self.why = name, why

    @staticmethod
    def option(name: str) -> str:
        """Return the option that allows a name."""
        return f"--allow {name.partition(':')[0]}"


@contextmanager
def within(allowed: Iterable[str]) -> Iterator[None]:
    """Look `module:Class` up only where it is allowed, as long as the context lasts.

    Components of mclabel's own and those of installed packages' entry points always are.

    Args:
        allowed: modules and packages, all that they hold themselves included, and names
            `module:Class`.
    """
    token = _allowed.set(frozenset(allowed))
    try:
        yield
    finally:
        _allowed.reset(token)


def component_names(kind: str, *, built_in: bool = False) -> list[str]:
    """Return the names of a kind's components, the built-in ones first.

    Args:
        kind: a key of `BUILT_IN`.
        built_in: leave those of other packages out.
    """
    if built_in:
        return list(_built_in(kind))
    return [*_built_in(kind), *sorted(set(_added(kind)) - set(_built_in(kind)))]


FUNCTIONS: Mapping[str, str] = {
    "checkers": "mclabel.checkers.function:FunctionChecker",
    "judges": "mclabel.judge:JUDGES",
    "readers": "mclabel.data.readers.sources:FunctionReader",
}
"""Kinds of which a plain function is a component, and the class that calls it."""


def find_component(kind: str, name: str) -> Any:
    """Return the class of a name; for a plain function, the class that calls it.

    Args:
        kind: a key of `BUILT_IN`.
        name: name of a built-in component or another package's entry point, or `module:Class`.

    Raises:
        NotAllowed: it must not be imported.
        ConfigError: there is none of that name, or it cannot be imported.
    """
    target = find_target(kind, name)
    if kind in FUNCTIONS and (isfunction(target) or ismethod(target)):
        return _imported(FUNCTIONS[kind])
    return target


_outside: dict[str, None] = {}
"""Names of other packages' components that were found, in order: the keys alone count."""


def outside_components() -> list[str]:
    """Return the names of the components of other packages that this process has looked up."""
    return list(_outside)


def find_target(kind: str, name: str) -> Any:
    """Return the class or function of a name now: a notebook may define it again.

    Args:
        kind: a key of `BUILT_IN`.
        name: name of a built-in component or another package's entry point, or `module:Class`.

    Raises:
        NotAllowed: it must not be imported.
        ConfigError: there is none of that name, or it cannot be imported.
    """
    built_in, added = _built_in(kind), _added(kind)
    if name in built_in:
        return _imported(built_in[name])
    if name in added:
        target = _loaded(name, added[name])
    elif ":" in name:
        target = _of_user(name)
    else:
        names = component_names(kind)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"{name}: is not among the {kind}. {meant}Choose one of {', '.join(names)}, or "
            "module:Class of your own"
        )
    _outside[name] = None
    return target


def derived_class(settings: Any, base: type) -> Any:
    """Return the class that settings name; it must derive from the base class of its kind.

    Raises:
        ConfigError: it is not. The message names the key and the page of the documentation.
    """
    target, kind = settings.component, settings.component_kind
    if isinstance(target, type) and issubclass(target, base):
        return target
    wanted = f"{base.__module__}.{base.__qualname__}"
    raise ConfigError(
        f"{_KEYS[kind]}={settings.kind}: must be a class derived from {wanted} ({PAGES[kind]})"
    )


def component_name(kind: str, target: Any) -> str:
    """Return the name of a class or function: the inverse of `find_component`."""
    path = f"{target.__module__}:{target.__qualname__}"
    built_in = {value: name for name, value in _built_in(kind).items()}
    added = {point.value: name for name, point in _added(kind).items()}
    return built_in.get(path) or added.get(path) or path


def _loaded(name: str, point: EntryPoint) -> Any:
    package = point.dist.name if point.dist is not None else "a package without a name"
    try:
        return point.load()
    except Exception as error:  # whatever another package's code raises
        raise ConfigError(
            f"{name}: the entry point {point.value} of {package} cannot be loaded "
            f"({type(error).__name__}: {error}). Repair or remove that package"
        ) from error


def _of_user(name: str) -> Any:
    allowed = _allowed.get()
    by_name = allowed is None or name in allowed
    if not by_name and not _is_of(name.partition(":")[0], allowed):
        raise NotAllowed(
            name,
            "is code that is named only in a file, so for security it is neither imported nor "
            "called",
        )
    try:
        target = _imported(name, through_modules=by_name)
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}). Give module:Class of "
            "a module that Python can import on every node that runs an engine (PYTHONPATH=. "
            "adds the current folder)"
        ) from error
    home = getattr(target, "__module__", None)
    if not by_name and callable(target) and not _is_of(str(home), allowed):
        raise NotAllowed(f"{home}:{getattr(target, '__qualname__', name)}", f"is what {name} is")
    return target


def _is_of(module: str, allowed: Iterable[str] | None) -> bool:
    """Return whether a module, or a package that it is in, is allowed."""
    return any(module == name or module.startswith(f"{name}.") for name in allowed or ())


@cache
def _built_in(kind: str) -> Mapping[str, str]:
    return _imported(BUILT_IN[kind])  # type: ignore[no-any-return]


@cache
def _added(kind: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"mclabel.{kind}")}


def _imported(target: str, *, through_modules: bool = True) -> Any:
    """Import the object at `module:object`.

    Args:
        target: its place.
        through_modules: whether the object may be one of a module that this module imports.
    """
    module, _, name = target.partition(":")
    value: Any = import_module(module)
    for part in name.split("."):
        value = getattr(value, part)
        if ismodule(value) and not through_modules:
            raise ImportError(f"{part} is another module")
    return value
