"""Modules of a package as syntax trees, and the words in them."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "mclabel"


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
