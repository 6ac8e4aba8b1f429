"""Counts what makes a package hard to live in, from its syntax trees: `make house`.

    python scripts/house.py              # this checkout; ends with 1 where a bar is missed
    python scripts/house.py --details    # and names what each figure counts
    python scripts/house.py --root ../before --root .    # two checkouts, side by side

Nothing is imported, so that any checkout can be counted. What each figure is:

settings_declared_twice (bar 0)
    Pairs of places that declare the same settings. A place is a settings model (a class named
    `Settings`, `*Settings` or `*Config`, or derived from one or from pydantic's `BaseModel`),
    another class with annotated fields, or the parameters of a function. Two settings are the same
    if name and default are (and the type, between two models). Fields without a default, and
    fields that nest another model, do not count: these are how a configuration is put together. A
    pair counts from three settings on, if one of the two is a model, neither inherits from the
    other, and a function, or a class that is no model, repeats a model of its own room or of
    `config`.
choices_declared_twice (bar 0)
    Sets of two words or more that stand in two `Literal`s.
package_circles (bar 0)
    Groups of rooms (folders and files at the package's top level) that import each other. Imports
    inside functions and under TYPE_CHECKING count, too. The package's own `__init__`, which offers
    what stands in the rooms, is left out.
module_circles (bar 0)
    Groups of modules that import each other while they are imported. `from a import b` is an
    import of `a.b` where that is a module, else of `a`.
long_functions (bar 0)
    Functions and methods of more than 80 lines, from `def` to the last line.
names_outside_their_room (bar 0)
    Places outside `engines/` (in older checkouts `policy/`) or `estimators/` that ask for one of
    its built-in components by name: `==`, `!=`, `in` and `match` with its name, `isinstance` of
    its class, and a dict or a `Literal` of two names or more. A name that is also a field of a
    record (`posterior`, `outcome`, `first_error`) counts where it is compared with something that
    is called kind, engine or estimator. The source of a label is no estimator, whatever its word.
files_an_estimator_touches (bar 1)
    Files that list the estimator `sequential` or its class, its own file left out: by its name as a
    word, by `module:Class`, or by the class. Making its settings, `SequentialEstimator.Settings()`,
    is the use of it that anyone may make, and does not count.
documented_percent (bar 95)
    Public functions and methods that have a docstring of their own, in %. Left out are overloads,
    setters of properties, functions inside functions, and what a private class holds.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "mclabel"
MAX_LINES, MIN_REPEATED = 80, 3
REFERENCE = ("sequential", "SequentialEstimator")
ROOMS = {"estimators": ("Estimator",), "engines": ("Engine", "Policy"), "policy": ("Policy",)}
"""Rooms of components, and how their classes' names end."""
CHOOSES = ("kind", "engine", "estimator")
"""What is called so holds the name of a component."""
MOST = {
    "settings_declared_twice": 0,
    "choices_declared_twice": 0,
    "package_circles": 0,
    "module_circles": 0,
    "long_functions": 0,
    "names_outside_their_room": 0,
    "files_an_estimator_touches": 1,
}
LEAST = {"documented_percent": 95.0}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = Mapping[str, set[str]]


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    name: str
    """Dotted, without the package's own name; empty for the package itself."""
    tree: ast.Module
    nodes: Sequence[ast.AST] = field(repr=False)
    """All of the tree's."""

    @property
    def room(self) -> str:
        """The folder at the top level, or the file itself."""
        return self.name.split(".")[0]


@dataclass(frozen=True)
class Figure:
    """One count, and what makes it up."""

    value: float
    found: Sequence[str] = field(repr=False)


def measure(package: Path) -> dict[str, Figure]:
    """All figures of a package.

    Args:
        package: its folder.
    """
    modules = read(package)
    counted = {
        "settings_declared_twice": declared_twice(modules),
        "choices_declared_twice": choices_declared_twice(modules),
        "package_circles": [" <-> ".join(group) for group in circles(room_graph(modules))],
        "module_circles": [" <-> ".join(group) for group in circles(module_graph(modules))],
        "long_functions": long_functions(modules),
        "names_outside_their_room": named_outside(modules),
        "files_an_estimator_touches": files_touched(modules),
    }
    figures = {name: Figure(len(found), found) for name, found in counted.items()}
    num_public, without = undocumented(modules)
    share = 100 * (1 - len(without) / num_public) if num_public else 100.0
    figures["documented_percent"] = Figure(round(share, 1), without)
    return figures


def missed(figures: Mapping[str, Figure]) -> list[str]:
    """Names of the figures that miss their bar."""
    return [name for name, most in MOST.items() if figures[name].value > most] + [
        name for name, least in LEAST.items() if figures[name].value < least
    ]


def read(package: Path) -> list[Module]:
    """Every module of a package."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        modules.append(Module(name, tree, tuple(ast.walk(tree))))
    return modules


def imported(tree: ast.Module, names: set[str], *, at_import: bool) -> set[str]:
    """Modules of the package that a module imports.

    Args:
        tree: of the module.
        names: of the package's modules.
        at_import: leave out what runs later, in functions, or never, under TYPE_CHECKING.
    """
    found = set()
    for node in _walk(tree, at_import=at_import):
        if isinstance(node, ast.Import):
            paths = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            paths = [[*node.module.split("."), alias.name] for alias in node.names]
        else:
            continue
        for package, *parts in paths:
            if package == PACKAGE:
                while parts and ".".join(parts) not in names:
                    parts.pop()
                if parts:
                    found.add(".".join(parts))
    return found


def _walk(tree: ast.Module, *, at_import: bool) -> Iterator[ast.AST]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for child in ast.iter_child_nodes(node):
            runs_later = isinstance(child, Function | ast.Lambda) or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            if not (at_import and runs_later):
                waiting.append(child)


def room_graph(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Rooms that each room imports."""
    names = {module.name for module in modules if module.name}
    graph: dict[str, set[str]] = {name.split(".")[0]: set() for name in names}
    for module in modules:
        if module.name:
            for name in imported(module.tree, names, at_import=False):
                graph[module.room].add(name.split(".")[0])
    return {room: rooms - {room} for room, rooms in graph.items()}


def module_graph(modules: Sequence[Module]) -> dict[str, set[str]]:
    """Modules that each module imports while it is imported."""
    names = {module.name for module in modules if module.name}
    return {
        module.name: imported(module.tree, names, at_import=True) - {module.name}
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


def functions(modules: Iterable[Module]) -> Iterator[tuple[Module, str, Function]]:
    """Every function and method, with the dotted name of its place."""

    def inside(node: ast.AST, path: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            below = f"{path}.{child.name}" if isinstance(child, Function | ast.ClassDef) else path
            if isinstance(child, Function):
                yield below, child
            yield from inside(child, below)

    for module in modules:
        for path, node in inside(module.tree, module.name):
            yield module, path, node


def long_functions(modules: Iterable[Module]) -> list[str]:
    """Functions of more than `MAX_LINES` lines."""
    lengths = {
        path: (node.end_lineno or node.lineno) - node.lineno + 1
        for _, path, node in functions(modules)
    }
    return [f"{path} ({lines})" for path, lines in lengths.items() if lines > MAX_LINES]


def undocumented(modules: Iterable[Module]) -> tuple[int, list[str]]:
    """The number of public functions and methods, and those that have no docstring."""

    def public(body: Sequence[ast.stmt], path: str) -> Iterator[tuple[str, Function]]:
        for node in body:
            if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
                continue
            if isinstance(node, ast.ClassDef):
                yield from public(node.body, f"{path}.{node.name}")
                continue
            decorators = [ast.unparse(one) for one in node.decorator_list]
            if not any(one.endswith(("overload", ".setter")) for one in decorators):
                yield f"{path}.{node.name}", node

    found = [
        (path, node) for module in modules for path, node in public(module.tree.body, module.name)
    ]
    return len(found), [path for path, node in found if not ast.get_docstring(node)]


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
            if (words := _literal(node)) and len(words) > 1:
                places[words].append(f"{module.name}:{getattr(node, 'lineno', 0)}")
    return [
        f"{', '.join(sorted(words))}: {' and '.join(found)}"
        for words, found in places.items()
        if len(found) > 1
    ]


def _literal(node: ast.AST) -> frozenset[str]:
    """The words of a `Literal`; none if the node is none."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).split(".")[-1] != "Literal":
        return frozenset()
    return frozenset(_texts(node.slice))


def _texts(node: ast.AST) -> list[str]:
    return [
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


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
                found[module.room] |= {word for key in keys for word in _texts(key)}
    return found


def _snake(name: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")


def _asked(node: ast.AST, names: set[str], ambiguous: set[str]) -> Iterator[str]:
    """Names of components that a node asks for."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        named = (one for one in sides if any(isinstance(n, ast.Name) for n in ast.walk(one)))
        other = " ".join(map(ast.unparse, named))
        words = {word for one in sides for word in _texts(one)}
        yield from _asked_of(other, words & names, ambiguous)
    elif isinstance(node, ast.Match):
        words = {word for case in node.cases for word in _texts(case.pattern)}
        yield from _asked_of(ast.unparse(node.subject), words & names, ambiguous)
    elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
        kinds = (one for one in ast.walk(node.args[1]) if isinstance(one, ast.Name | ast.Attribute))
        yield from {ast.unparse(one).split(".")[-1] for one in kinds} & names
    else:
        keys = [key for key in node.keys if key] if isinstance(node, ast.Dict) else []
        words = {word for key in keys for word in _texts(key)} | _literal(node)
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


def main() -> int:
    """Print the figures; 1 where this checkout misses a bar."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--root", type=Path, action="append", help="a checkout, or its package")
    parser.add_argument("--details", action="store_true", help="name what each figure counts")
    parser.add_argument("--graph", action="store_true", help="print which room imports which")
    parser.add_argument("--json", action="store_true", help="print figures as JSON alone")
    arguments = parser.parse_args()
    packages = [_package(root) for root in arguments.root or [ROOT]]
    if arguments.graph:
        for room, others in sorted(room_graph(read(packages[-1])).items()):
            print(f"{room}: {', '.join(sorted(others)) or '-'}")
        return 0
    columns = [measure(package) for package in packages]
    if arguments.json:
        print(json.dumps([{n: f.value for n, f in figures.items()} for figures in columns]))
    else:
        _show(columns, details=arguments.details)
    return 1 if missed(columns[-1]) else 0


def _show(columns: Sequence[Mapping[str, Figure]], *, details: bool) -> None:
    short_of_bar = missed(columns[-1])
    for name, last in columns[-1].items():
        bar = f"<= {MOST[name]}" if name in MOST else f">= {LEAST[name]:g}"
        values = "".join(f"{figures[name].value:>8g}" for figures in columns)
        print(f"{name:28}{values}   {bar}{'   MISSED' if name in short_of_bar else ''}")
        if details or name in short_of_bar:
            for line in last.found if details else last.found[:5]:
                print(f"    {line}")


def _package(root: Path) -> Path:
    package = root / PACKAGE if (root / PACKAGE).is_dir() else root
    if not (package / "__init__.py").is_file():
        sys.exit(f"{root}: holds no package {PACKAGE}")
    return package


if __name__ == "__main__":
    sys.exit(main())
