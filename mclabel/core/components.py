"""Finds a component by the name that a configuration gives it.

Every kind of component (estimators, engines, checkers, …) is open. Built-in ones stand in a literal
dict in their room, other packages add theirs by the entry-point group `mclabel.<kind>`, and
`module:Class` names one without any registration. A component is imported when it is chosen, so
none costs an import that is not used.

`module:Class` is code of anybody's. A Python caller may name what it likes; of a document, or of
what a run has recorded, it is imported only where the person at the command line has named it
too: such names are looked up `within` what was allowed.
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
"""By kind: `module:NAME` of the dict that holds each built-in component's name and
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
"""By kind: the page that says what a component of one's own must do."""
_KEYS = {
    "engines": "policy.engine",
    "judges": "judge",
    "searches": "search.kind",
    "scorers": "scorer.kind",
    "credits": "credit.kind",
}
"""By kind, for messages: the key that names the component."""

_allowed: ContextVar[frozenset[str] | None] = ContextVar("_allowed", default=None)
"""Modules and names that may be imported; None for any, since a Python caller named them."""


class NotAllowed(ConfigError):
    """A name of code that nobody at the command line has named."""

    def __init__(self, name: str, why: str) -> None:
        """Say it.

        Args:
            name: `module:Class`.
            why: a clause of which the name is the subject.
        """
        super().__init__(f"{name} {why}. If you trust it, pass {self.option(name)}")
        self.name, self.why = name, why

    @staticmethod
    def option(name: str) -> str:
        """The option that allows a name."""
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
    """Names of a kind's components: the built-in ones, then those of other packages.

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
    """The class that a name stands for; of a plain function, the class that calls it.

    Args:
        kind: a key of `BUILT_IN`.
        name: of a built-in component, of another package's entry point, or `module:Class`.

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
    """Names of the components of other packages that this process has looked up."""
    return list(_outside)


def find_target(kind: str, name: str) -> Any:
    """The class or function itself that a name stands for now: a notebook may define it again.

    Args:
        kind: a key of `BUILT_IN`.
        name: of a built-in component, of another package's entry point, or `module:Class`.

    Raises:
        NotAllowed: it must not be imported.
        ConfigError: there is none of that name, or it cannot be imported.
    """
    built_in, added = _built_in(kind), _added(kind)
    if name in built_in:
        return _imported(built_in[name])
    if name in added:
        found = _loaded(name, added[name])
    elif ":" in name:
        found = _of_user(name)
    else:
        known = component_names(kind)
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        meant = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(
            f"{name}: is not among the {kind}. {meant}Choose one of {', '.join(known)}, or "
            "module:Class of your own"
        )
    _outside[name] = None
    return found


def derived_class(settings: Any, base: type) -> Any:
    """The class that settings name, which must be derived from the base class of its kind.

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
    """The name under which a class or function would be found: the inverse of `find_component`."""
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
        found = _imported(name, through_modules=by_name)
    except Exception as error:  # whatever the user's code raises
        raise ConfigError(
            f"{name}: cannot be imported ({type(error).__name__}: {error}). Give module:Class of "
            "a module that Python can import on every node that runs an engine (PYTHONPATH=. "
            "adds the current folder)"
        ) from error
    home = getattr(found, "__module__", None)
    if not by_name and callable(found) and not _is_of(str(home), allowed):
        raise NotAllowed(f"{home}:{getattr(found, '__qualname__', name)}", f"is what {name} is")
    return found


def _is_of(module: str, allowed: Iterable[str] | None) -> bool:
    """Whether a module, or a package that it is in, is allowed."""
    return any(module == one or module.startswith(f"{one}.") for one in allowed or ())


@cache
def _built_in(kind: str) -> Mapping[str, str]:
    found: Mapping[str, str] = _imported(BUILT_IN[kind])
    return found


@cache
def _added(kind: str) -> Mapping[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"mclabel.{kind}")}


def _imported(target: str, *, through_modules: bool = True) -> Any:
    """What stands at `module:object`.

    Args:
        target: its place.
        through_modules: whether the object may be one of a module that this module imports.
    """
    module, _, name = target.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
        if ismodule(found) and not through_modules:
            raise ImportError(f"{part} is another module")
    return found
