"""Who names components, and the files that know the reference estimator."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from house_modules import Module, literal_words, texts

REFERENCE = ("sequential", "SequentialEstimator")
ROOMS = {"estimators": ("Estimator",), "engines": ("Engine", "Policy"), "policy": ("Policy",)}
"""Rooms of components, and how their classes' names end."""
CHOOSES = ("kind", "engine", "estimator")
"""What is called so holds the name of a component."""


def named_outside(modules: Sequence[Module]) -> list[str]:
    """Places outside a room that ask for one of its components by name."""
    fields = {
        one.target.id
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    }
    known = component_names(modules)
    found = []
    for module in modules:
        names = {name for room, those in known.items() if room != module.room for name in those}
        for node in module.nodes:
            found += [
                f"{module.name}:{getattr(node, 'lineno', 0)} {name}"
                for name in sorted(set(_asked(node, names, names & fields)))
            ]
    return found


def component_names(modules: Iterable[Module]) -> dict[str, set[str]]:
    """Names and classes of the built-in components, by room.

    They are the keys of the room's dict (`ESTIMATORS`, `ENGINES`), its classes, and, for checkouts
    that have no such dict, the names that the classes' own names hold.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        endings = ROOMS.get(module.room, ())
        for node in module.nodes if endings else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for short in {node.name.removesuffix(ending) for ending in endings} - {node.name}:
                    if short:
                        found[module.room] |= {node.name, short.lower(), _snake(short)}
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.value, ast.Dict)
                and ast.unparse(node.target) == module.room.upper()
            ):
                keys = [key for key in node.value.keys if key]
                found[module.room] |= {word for key in keys for word in texts(key)}
    return found


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _asked(node: ast.AST, names: set[str], ambiguous: set[str]) -> Iterator[str]:
    """Names of components that a node asks for."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        named = (one for one in sides if any(isinstance(n, ast.Name) for n in ast.walk(one)))
        other = " ".join(map(ast.unparse, named))
        words = {word for one in sides for word in texts(one)}
        yield from _asked_of(other, words & names, ambiguous)
    elif isinstance(node, ast.Match):
        words = {word for case in node.cases for word in texts(case.pattern)}
        yield from _asked_of(ast.unparse(node.subject), words & names, ambiguous)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        kinds = (one for one in ast.walk(node.args[1]) if isinstance(one, ast.Name | ast.Attribute))
        yield from {ast.unparse(one).split(".")[-1] for one in kinds} & names
    else:
        keys = [key for key in node.keys if key] if isinstance(node, ast.Dict) else []
        words = {word for key in keys for word in texts(key)} | literal_words(node)
        if len(clear := words & names - ambiguous) > 1:
            yield from clear


def _asked_of(other: str, names: set[str], ambiguous: set[str]) -> Iterator[str]:
    """Of names that something is compared with: those that are meant as components."""
    is_source = other.endswith(("source", "sources"))
    is_component = any(word in other.lower() for word in CHOOSES)
    yield from (name for name in names if (is_component if name in ambiguous else not is_source))


def files_touched(modules: Iterable[Module]) -> list[str]:
    """Files that name the reference estimator, beside its own."""
    name, kind = REFERENCE

    def lists(module: Module) -> bool:
        used = {
            id(node.value)
            for node in module.nodes
            if isinstance(node, ast.Attribute) and node.attr == "Settings"
        }
        return any(
            (isinstance(node, ast.Constant) and str(node.value) == name)
            or (isinstance(node, ast.Constant) and str(node.value).endswith(f":{kind}"))
            or (isinstance(node, ast.Name) and node.id == kind and id(node) not in used)
            for node in module.nodes
        )

    return [
        module.name for module in modules if module.name.split(".")[-1] != name and lists(module)
    ]
