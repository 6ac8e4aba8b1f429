"""What imports what in a package, and the circles in it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from house_modules import PACKAGE, Module

Graph = Mapping[str, set[str]]


def package_circles(modules: Sequence[Module]) -> list[str]:
    """Groups of rooms that import each other."""
    return [_joined(group) for group in circles(room_graph(modules))]


def module_circles(modules: Sequence[Module]) -> list[str]:
    """Groups of modules that import each other while they are imported."""
    return [_joined(group) for group in circles(_module_graph(modules, at_import=True))]


def lazy_circles(modules: Sequence[Module]) -> list[str]:
    """Groups of modules that import each other at any time, or for their types alone."""
    return [_joined(group) for group in circles(_module_graph(modules, at_import=False))]


def second_level_circles(modules: Sequence[Module]) -> list[str]:
    """Groups of a room's folders that import each other, also by way of the room's files."""
    parts = {module.name: _part(module.name) for module in modules if "." in module.name}
    packages = {name.rpartition(".")[0] for name in parts}
    graph: dict[str, set[str]] = {part: set() for part in parts.values()}
    for module in modules:
        if module.name in parts and not (module.name in packages and _only_offers(module)):
            part = parts[module.name]
            others = {parts[name] for name in imported(module, set(parts), at_import=False)}
            graph[part] |= {one for one in others - {part} if one.split(".")[0] == module.room}
    return [_joined(group) for group in circles(graph) if len(packages.intersection(group)) > 1]


def _joined(group: Sequence[str]) -> str:
    return " <-> ".join(group)


def _part(name: str) -> str:
    """The folder or file of a room in which a module stands."""
    return ".".join(name.split(".")[:2])


def _only_offers(module: Module) -> bool:
    """Whether a module does nothing but import and name what it offers."""
    return all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__")
        for node in module.tree.body
    )


def imported(module: Module, names: set[str], *, at_import: bool) -> set[str]:
    """Modules of the package that a module imports.

    Args:
        module: which imports.
        names: of the package's modules.
        at_import: leave out what runs later, in functions, or never, under TYPE_CHECKING.
    """
    found = set()
    for path, runs_later in module.imports:
        package, *parts = path
        if package == PACKAGE and not (at_import and runs_later):
            while parts and ".".join(parts) not in names:
                parts.pop()
            if parts:
                found.add(".".join(parts))
    return found


def room_graph(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Rooms that each room imports."""
    names = {module.name for module in modules if module.name}
    graph: dict[str, set[str]] = {name.split(".")[0]: set() for name in names}
    for module in modules:
        if module.name:
            for name in imported(module, names, at_import=False):
                graph[module.room].add(name.split(".")[0])
    return {room: rooms - {room} for room, rooms in graph.items()}


def _module_graph(modules: Sequence[Module], *, at_import: bool) -> dict[str, set[str]]:
    names = {module.name for module in modules if module.name}
    return {
        module.name: imported(module, names, at_import=at_import) - {module.name}
        for module in modules
        if module.name
    }


def circles(graph: Graph) -> list[list[str]]:
    """Groups of two nodes or more that reach each other, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                groups.append(sorted(stack[start:]))
            del stack[start:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups
