"""Settings and choices that are declared more than once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from house_lengths import functions
from house_modules import Module, literal_words

MIN_REPEATED = 3


@dataclass(frozen=True)
class Declared:
    """A class, or a function's parameters, with the settings declared there."""

    place: str
    room: str
    is_model: bool
    settings: Mapping[str, tuple[str, str]]
    """Name: type and default, as written."""
    related: frozenset[str] = frozenset()
    """Names of classes that it inherits from, itself among them."""


def declared_twice(modules: Sequence[Module]) -> list[str]:
    """Pairs of places that declare the same settings."""
    classes, parameters = _declared_classes(modules), _declared_parameters(modules)
    models = [one for one in classes if one.is_model]
    others = [one for one in classes if not one.is_model] + parameters
    pairs = []
    for first, second in combinations(models, 2):
        if not first.related & second.related:
            same = [n for n, v in first.settings.items() if second.settings.get(n) == v]
            pairs.append((first, second, same))
    for other in others:
        for model in models:
            if model.room in (other.room, "config") and not other.place.startswith(model.place):
                same = [
                    name
                    for name, (_, default) in model.settings.items()
                    if name in other.settings and other.settings[name][1] == default
                ]
                pairs.append((other, model, same))
    return [
        f"{first.place} and {second.place}: {', '.join(same)}"
        for first, second, same in pairs
        if len(same) >= MIN_REPEATED
    ]


def _declared_classes(modules: Sequence[Module]) -> list[Declared]:
    nodes = [
        (module, node)
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    ]
    bases: dict[str, set[str]] = defaultdict(set)
    for _, node in nodes:
        if node.name != "Settings":  # many components have a class of this name
            bases[node.name] |= {ast.unparse(base).split(".")[-1] for base in node.bases}

    def above(names: Iterable[str]) -> set[str]:
        reached, waiting = set(), list(names)
        while waiting:
            if (name := waiting.pop()) not in reached:
                reached.add(name)
                waiting += bases.get(name, ())
        return reached

    found = []
    for module, node in nodes:
        line = above(ast.unparse(base).split(".")[-1] for base in node.bases)
        if node.name != "Settings":
            line |= {node.name}
        is_model = node.name == "Settings" or any(map(_is_settings, line))
        settings = {
            one.target.id: (_type(one.annotation), default)
            for one in node.body
            if isinstance(one, ast.AnnAssign)
            and isinstance(one.target, ast.Name)
            and (default := _default(one.value))
            and not any(map(_is_settings, _words(one.annotation)))
        }
        related = frozenset(line - {"Settings", "BaseModel", "ComponentSettings", "Protocol"})
        place = f"{module.name}.{node.name}:{node.lineno}"
        found.append(Declared(place, module.room, is_model, settings, related))
    return found


def _declared_parameters(modules: Sequence[Module]) -> list[Declared]:
    found = []
    for module, path, node in functions(modules):
        given = node.args
        positional = [*given.posonlyargs, *given.args]
        filled = positional[len(positional) - len(given.defaults) :]
        pairs = [
            *zip(filled, given.defaults, strict=True),
            *zip(given.kwonlyargs, given.kw_defaults, strict=True),
        ]
        settings = {
            argument.arg: ("", ast.unparse(default))
            for argument, default in pairs
            if default is not None
        }
        found.append(Declared(path, module.room, False, settings))
    return found


def _is_settings(name: str) -> bool:
    return name == "BaseModel" or name.endswith(("Settings", "Config"))


def _words(node: ast.AST) -> list[str]:
    return [one.id for one in ast.walk(node) if isinstance(one, ast.Name)]


def _type(annotation: ast.expr) -> str:
    """A type as written, without what `Annotated` adds."""
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Annotated":
        inside = annotation.slice
        return ast.unparse(inside.elts[0] if isinstance(inside, ast.Tuple) else inside)
    return ast.unparse(annotation)


def _default(value: ast.expr | None) -> str:
    """A default as written, also one in a `Field`; empty where there is none."""
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("Field", "field"):
        named = {one.arg: one.value for one in value.keywords}
        first = value.args[0] if value.args else named.get("default", named.get("default_factory"))
        return "" if first is None else ast.unparse(first)
    return "" if value is None else ast.unparse(value)


def choices_declared_twice(modules: Iterable[Module]) -> list[str]:
    """Sets of two words or more that stand in two `Literal`s."""
    places: dict[frozenset[str], list[str]] = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if (words := literal_words(node)) and len(words) > 1:
                places[words].append(f"{module.name}:{getattr(node, 'lineno', 0)}")
    return [
        f"{', '.join(sorted(words))}: {' and '.join(found)}"
        for words, found in places.items()
        if len(found) > 1
    ]
