"""Modules of a package as syntax trees, and the words in them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

PACKAGE = "mclabel"

Function = ast.FunctionDef | ast.AsyncFunctionDef


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

    @cached_property
    def imports(self) -> Sequence[tuple[Sequence[str], bool]]:
        """Imported names, each with whether the import runs later than the module, or never."""
        return tuple(_imports(self.tree, runs_later=False))


def _imports(node: ast.AST, *, runs_later: bool) -> Iterator[tuple[Sequence[str], bool]]:
    """Imports at and below a node; those in functions and under TYPE_CHECKING run later."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name.split("."), runs_later
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            yield [*node.module.split("."), alias.name], runs_later
    elif not isinstance(node, ast.expr):  # an expression holds no statement
        runs_later = runs_later or isinstance(node, Function) or _for_types(node)
        for child in ast.iter_child_nodes(node):
            yield from _imports(child, runs_later=runs_later)


def _for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def read(package: Path) -> list[Module]:
    """Every module of a package."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        modules.append(Module(name, tree, tuple(ast.walk(tree))))
    return modules


def literal_words(node: ast.AST) -> frozenset[str]:
    """The words of a `Literal`; none if the node is none."""
    if not isinstance(node, ast.Subscript) or ast.unparse(node.value).split(".")[-1] != "Literal":
        return frozenset()
    return frozenset(texts(node.slice))


def texts(node: ast.AST) -> list[str]:
    return [
        one.value
        for one in ast.walk(node)
        if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]
